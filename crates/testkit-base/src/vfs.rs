//! A VFS that asks [`State`] before it lets an operation through to the machine's own.
#![allow(
    unsafe_code,
    reason = "SQLite's VFS is a C interface. Reviewed: a file's memory is SQLite's, `szOsFile` bytes, ours in front and \
              the real one behind it; both are written only by the connection that owns them. What a VFS points to is \
              leaked, so that it outlives every connection. The real file's methods are only called after it was opened."
)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use libsqlite3_sys as ffi;

use crate::disk::{Kind, Operation, State, Verdict};

/// What SQLite holds for an open file of ours. The real file's structure follows it.
/// SQLite aligns a file to 8 bytes and no more.
#[repr(C, align(8))]
struct File {
    base: ffi::sqlite3_file,
    state: &'static State,
    kind: Kind,
}

/// Registers a VFS of this name that lives as long as the process.
pub(crate) fn register(name: &str, state: &'static State) {
    let name = CString::new(name).expect("a name without NUL");
    // SAFETY: SQLite gives its default VFS, which stays registered. What the new one points to is leaked or static.
    let registered = unsafe {
        let real = ffi::sqlite3_vfs_find(ptr::null());
        assert!(!real.is_null(), "SQLite has a default VFS");
        let vfs = ffi::sqlite3_vfs {
            iVersion: 2,
            szOsFile: size_of::<File>() as c_int + (*real).szOsFile,
            pNext: ptr::null_mut(),
            zName: name.into_raw(),
            pAppData: ptr::from_ref(state).cast_mut().cast(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
            // The rest takes no notice of the VFS it is called with.
            ..*real
        };
        ffi::sqlite3_vfs_register(Box::into_raw(Box::new(vfs)), 0)
    };
    assert_eq!(registered, ffi::SQLITE_OK, "SQLite takes another VFS");
}

/// The default VFS.
unsafe fn real_vfs() -> *mut ffi::sqlite3_vfs {
    // SAFETY: may be called at any time.
    unsafe { ffi::sqlite3_vfs_find(ptr::null()) }
}

unsafe fn state_of(vfs: *mut ffi::sqlite3_vfs) -> &'static State {
    // SAFETY: `register` put a `&'static State` there.
    unsafe { &*(*vfs).pAppData.cast::<State>() }
}

/// The state, the kind, and the real file with its methods.
unsafe fn parts(
    file: *mut ffi::sqlite3_file,
) -> (&'static State, Kind, *mut ffi::sqlite3_file, &'static ffi::sqlite3_io_methods) {
    // SAFETY: SQLite calls methods only on files that `open` opened, which has written both parts.
    unsafe {
        let ours = file.cast::<File>();
        let real = ours.add(1).cast::<ffi::sqlite3_file>();
        ((*ours).state, (*ours).kind, real, &*(*real).pMethods)
    }
}

/// The main file and its companions differ by their flags, and the journal by its name where it is deleted.
fn kind_of(flags: c_int) -> Kind {
    match flags {
        _ if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 => Kind::Main,
        _ if flags & ffi::SQLITE_OPEN_WAL != 0 => Kind::Wal,
        _ if flags & ffi::SQLITE_OPEN_MAIN_JOURNAL != 0 => Kind::Journal,
        _ => Kind::Other,
    }
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: `file` has room for both parts; the name goes through as it came, with its parameters behind it.
    unsafe {
        let (state, kind) = (state_of(vfs), kind_of(flags));
        (*file).pMethods = ptr::null();
        let creates = flags & ffi::SQLITE_OPEN_CREATE != 0
            && !name.is_null()
            && !Path::new(CStr::from_ptr(name).to_string_lossy().as_ref()).exists();
        let verdict =
            if creates { state.change(Operation::Create, kind) } else { state.look(ffi::SQLITE_CANTOPEN) };
        if let Verdict::Fails(code) | Verdict::Torn(code) = verdict {
            return code;
        }
        let ours = file.cast::<File>();
        let inner = ours.add(1).cast::<ffi::sqlite3_file>();
        (*inner).pMethods = ptr::null();
        let real = real_vfs();
        let code = (*real).xOpen.expect(ALWAYS)(real, name, inner, flags, out);
        if !(*inner).pMethods.is_null() {
            ptr::addr_of_mut!((*ours).state).write(state);
            ptr::addr_of_mut!((*ours).kind).write(kind);
            (*file).pMethods = &raw const METHODS;
        }
        code
    }
}

const ALWAYS: &str = "every VFS has this method";

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: arguments go through as they came.
    unsafe {
        let kind = match CStr::from_ptr(name).to_bytes() {
            name if name.ends_with(b"-wal") => Kind::Wal,
            name if name.ends_with(b"-journal") => Kind::Journal,
            _ => Kind::Other,
        };
        match state_of(vfs).change(Operation::Delete, kind) {
            Verdict::Fails(code) | Verdict::Torn(code) => code,
            Verdict::Passes => {
                let real = real_vfs();
                (*real).xDelete.expect(ALWAYS)(real, name, sync)
            }
        }
    }
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: arguments go through as they came.
    unsafe {
        match state_of(vfs).look(ffi::SQLITE_IOERR_ACCESS) {
            Verdict::Fails(code) | Verdict::Torn(code) => code,
            Verdict::Passes => {
                let real = real_vfs();
                (*real).xAccess.expect(ALWAYS)(real, name, flags, out)
            }
        }
    }
}

unsafe extern "C" fn full_pathname(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    length: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: arguments go through as they came.
    unsafe {
        let real = real_vfs();
        (*real).xFullPathname.expect(ALWAYS)(real, name, length, out)
    }
}

/// Version 2: shared memory, but no memory-mapped reads, which would pass by the counters.
static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
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

/// Calls the real file's method unless the verdict is a failure.
macro_rules! through {
    ($file:ident, $verdict:expr, $method:ident($($argument:expr),*)) => {
        // SAFETY: arguments go through as they came, on the real file.
        unsafe {
            let (state, kind, real, methods) = parts($file);
            match $verdict(state, kind) {
                Verdict::Fails(code) | Verdict::Torn(code) => code,
                Verdict::Passes => match methods.$method {
                    Some(method) => method(real, $($argument),*),
                    None => ffi::SQLITE_IOERR,
                },
            }
        }
    };
}

/// What a dying process does too: its descriptors are closed and its locks go.
fn always(_: &State, _: Kind) -> Verdict {
    Verdict::Passes
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    through!(file, always, xClose())
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, to: *mut c_void, n: c_int, at: i64) -> c_int {
    through!(file, |state: &State, kind| state.read(kind, at, n), xRead(to, n, at))
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, from: *const c_void, n: c_int, at: i64) -> c_int {
    // SAFETY: arguments go through as they came, on the real file; half of the buffer is within the buffer.
    unsafe {
        let (state, kind, real, methods) = parts(file);
        let method = methods.xWrite.expect("every file can be written");
        match state.change(Operation::Write, kind) {
            Verdict::Passes => method(real, from, n, at),
            Verdict::Fails(code) => code,
            Verdict::Torn(code) => {
                method(real, from, n / 2, at);
                code
            }
        }
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    through!(file, |state: &State, kind| state.change(Operation::Truncate, kind), xTruncate(size))
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    through!(file, |state: &State, kind| state.change(Operation::Sync, kind), xSync(flags))
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    through!(file, |state: &State, _| state.look(ffi::SQLITE_IOERR_FSTAT), xFileSize(size))
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    through!(file, |state: &State, _| state.look(ffi::SQLITE_IOERR_LOCK), xLock(level))
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    through!(file, always, xUnlock(level))
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    through!(file, always, xCheckReservedLock(out))
}

unsafe extern "C" fn file_control(file: *mut ffi::sqlite3_file, op: c_int, argument: *mut c_void) -> c_int {
    through!(file, always, xFileControl(op, argument))
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    through!(file, always, xSectorSize())
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    through!(file, always, xDeviceCharacteristics())
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: arguments go through as they came, on the real file. SQLite reads `out` only after SQLITE_OK.
    unsafe {
        let (state, _, real, methods) = parts(file);
        let Some(method) = methods.xShmMap else {
            return ffi::SQLITE_IOERR;
        };
        if let Verdict::Fails(code) | Verdict::Torn(code) = state.look(ffi::SQLITE_IOERR_SHMMAP) {
            return code;
        }
        let extend = if state.is_full() { 0 } else { extend };
        let code = method(real, page, size, extend, out);
        match code == ffi::SQLITE_OK && (*out).is_null() && state.is_full() {
            true => ffi::SQLITE_IOERR_SHMSIZE,
            false => code,
        }
    }
}

unsafe extern "C" fn shm_lock(file: *mut ffi::sqlite3_file, at: c_int, n: c_int, flags: c_int) -> c_int {
    let unlocks = flags & ffi::SQLITE_SHM_UNLOCK != 0;
    let verdict = |state: &State, _| match unlocks {
        true => Verdict::Passes,
        false => state.look(ffi::SQLITE_IOERR_SHMLOCK),
    };
    through!(file, verdict, xShmLock(at, n, flags))
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: on the real file, which has shared memory if SQLite comes here.
    unsafe {
        let (_, _, real, methods) = parts(file);
        if let Some(method) = methods.xShmBarrier {
            method(real);
        }
    }
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: as all the others.
    let stopped = unsafe { parts(file).0.is_stopped() };
    // A process that dies deletes nothing.
    let delete = if stopped { 0 } else { delete };
    through!(file, always, xShmUnmap(delete))
}
