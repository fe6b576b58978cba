//! The file system that SQLite is given: its own default one, with every change asked for first.
//!
//! The only unsafe code of the tests. SQLite calls a VFS through tables of C functions, so there is no other way to
//! stand between it and its files.

#![allow(
    unsafe_code,
    reason = "SQLite takes a VFS as a table of C functions; this is its only implementation here"
)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libsqlite3_sys::{
    SQLITE_FULL, SQLITE_IOERR, SQLITE_IOERR_DELETE, SQLITE_IOERR_FSYNC, SQLITE_IOERR_TRUNCATE,
    SQLITE_IOERR_WRITE, SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs,
    sqlite3_vfs_find, sqlite3_vfs_register,
};

use crate::disk::{Operation, State, Verdict};

/// What the `pAppData` of a registered VFS points to. Never freed: SQLite may use a VFS until the process ends.
struct Below {
    vfs: *mut sqlite3_vfs,
    state: Arc<State>,
}

/// An open file. SQLite allocates it, with room for the default VFS's own behind it.
#[repr(C)]
struct File {
    methods: sqlite3_file,
    state: *const State,
    real: *mut sqlite3_file,
}

/// Registers a VFS under a name of its own, and returns the name.
pub(crate) fn register(state: Arc<State>) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("failing-disk-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let c_name = CString::new(name.clone()).expect("the name has no NUL");
    // SAFETY: the default VFS lives as long as the process. The copy keeps its functions, which take no state from the
    // VFS they are called with except in xOpen and xDelete; those two are replaced and call them with the original.
    unsafe {
        let default = sqlite3_vfs_find(std::ptr::null());
        assert!(!default.is_null(), "SQLite has no default VFS");
        let mut vfs = *default;
        vfs.szOsFile += size_of::<File>() as c_int;
        vfs.pNext = std::ptr::null_mut();
        vfs.zName = c_name.into_raw();
        vfs.pAppData = Box::into_raw(Box::new(Below { vfs: default, state })).cast();
        vfs.xOpen = Some(open);
        vfs.xDelete = Some(delete);
        let registered = sqlite3_vfs_register(Box::into_raw(Box::new(vfs)), 0);
        assert_eq!(registered, SQLITE_OK, "SQLite refused the VFS");
    }
    name
}

fn code(verdict: Verdict, failure: c_int) -> Option<c_int> {
    match verdict {
        Verdict::Works => None,
        Verdict::Fails => Some(failure),
        Verdict::Full => Some(SQLITE_FULL),
    }
}

/// SAFETY: for functions that SQLite calls with a file of ours.
unsafe fn ours<'f>(file: *mut sqlite3_file) -> &'f File {
    unsafe { &*file.cast::<File>() }
}

/// The default VFS's function for a file of ours, called with its own part of the file.
macro_rules! real {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        // SAFETY: SQLite calls this only between a successful xOpen, which set `real`, and xClose.
        unsafe {
            let real = ours($file).real;
            match (*(*real).pMethods).$method {
                Some(method) => method(real $(, $argument)*),
                None => SQLITE_IOERR,
            }
        }
    }};
}

fn asked(file: *mut sqlite3_file, operation: Operation, failure: c_int) -> Option<c_int> {
    // SAFETY: as for `real!`; the state outlives every file because its VFS is never freed.
    let state = unsafe { &*ours(file).state };
    code(state.operation(operation), failure)
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes the VFS that was registered and `szOsFile` bytes for the file, which are enough for both.
    unsafe {
        let below = &*(*vfs).pAppData.cast::<Below>();
        let ours = file.cast::<File>();
        let real = ours.add(1).cast::<sqlite3_file>();
        ours.write(File {
            methods: sqlite3_file { pMethods: std::ptr::null() },
            state: Arc::as_ptr(&below.state),
            real,
        });
        let Some(open) = (*below.vfs).xOpen else { return SQLITE_IOERR };
        let opened = open(below.vfs, name, real, flags, out);
        // SQLite closes a file exactly if it has methods.
        if !(*real).pMethods.is_null() {
            (*ours).methods.pMethods = &METHODS;
        }
        opened
    }
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: SQLite passes the VFS that was registered.
    unsafe {
        let below = &*(*vfs).pAppData.cast::<Below>();
        if let Some(failed) = code(below.state.operation(Operation::Other), SQLITE_IOERR_DELETE) {
            return failed;
        }
        (*below.vfs).xDelete.map_or(SQLITE_IOERR, |delete| delete(below.vfs, name, sync))
    }
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    // The second version: shared memory for the WAL, but no memory-mapped reads.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    real!(file, xClose)
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    to: *mut c_void,
    bytes: c_int,
    at: sqlite3_int64,
) -> c_int {
    real!(file, xRead, to, bytes, at)
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    bytes: c_int,
    at: sqlite3_int64,
) -> c_int {
    match asked(file, Operation::Write, SQLITE_IOERR_WRITE) {
        Some(failed) => failed,
        None => real!(file, xWrite, from, bytes, at),
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    match asked(file, Operation::Other, SQLITE_IOERR_TRUNCATE) {
        Some(failed) => failed,
        None => real!(file, xTruncate, size),
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    match asked(file, Operation::Other, SQLITE_IOERR_FSYNC) {
        Some(failed) => failed,
        None => real!(file, xSync, flags),
    }
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut sqlite3_int64) -> c_int {
    real!(file, xFileSize, size)
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    real!(file, xLock, level)
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    real!(file, xUnlock, level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, held: *mut c_int) -> c_int {
    real!(file, xCheckReservedLock, held)
}

unsafe extern "C" fn file_control(file: *mut sqlite3_file, op: c_int, argument: *mut c_void) -> c_int {
    real!(file, xFileControl, op, argument)
}

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    real!(file, xSectorSize)
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    real!(file, xDeviceCharacteristics)
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    to: *mut *mut c_void,
) -> c_int {
    real!(file, xShmMap, page, size, extend, to)
}

unsafe extern "C" fn shm_lock(file: *mut sqlite3_file, offset: c_int, count: c_int, flags: c_int) -> c_int {
    real!(file, xShmLock, offset, count, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    // SAFETY: as for `real!`, whose fallback has a code that this function can't return.
    unsafe {
        let real = ours(file).real;
        if let Some(barrier) = (*(*real).pMethods).xShmBarrier {
            barrier(real);
        }
    }
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    real!(file, xShmUnmap, delete)
}
