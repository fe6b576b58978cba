//! Finds pieces of secrets in files and in logs, however they are written there.

use std::collections::{BTreeSet, HashMap};

/// So much of a secret is a leak. The short forms of identifiers show four bytes.
const PIECE: usize = 8;
/// Pieces with fewer different bytes are zeros and lengths, which are found everywhere.
const TELLING: usize = 6;

/// What must not turn up.
#[derive(Default)]
pub(crate) struct Secrets(HashMap<[u8; PIECE], String>);

impl Secrets {
    /// Every piece of `secret` counts.
    pub(crate) fn add(&mut self, what: &str, secret: &[u8]) {
        for piece in secret.windows(PIECE) {
            if piece.iter().collect::<BTreeSet<_>>().len() >= TELLING {
                let piece = piece.try_into().expect("windows have this length");
                self.0.entry(piece).or_insert_with(|| what.to_owned());
            }
        }
    }

    /// Pieces that are text to the last byte don't count any more.
    pub(crate) fn forget_words(&mut self) {
        self.0.retain(|piece, _| !piece.iter().all(|byte| (b' '..=b'~').contains(byte)));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Which secrets these bytes show as they are.
    pub(crate) fn in_bytes(&self, bytes: &[u8]) -> BTreeSet<String> {
        let named = |piece: &[u8]| self.0.get(piece).map(|what| format!("{what}: {}", piece.escape_ascii()));
        bytes.windows(PIECE).filter_map(named).collect()
    }

    /// Which secrets a log shows: as they are, in hex, base64, a list of numbers, or escaped.
    pub(crate) fn in_log(&self, log: &[u8]) -> BTreeSet<String> {
        let mut found = self.in_bytes(log);
        for decoded in
            [runs(log, hex), runs(log, base64), lists(log, 10), lists(log, 16), vec![unescaped(log)]].concat()
        {
            found.extend(self.in_bytes(&decoded));
        }
        found
    }
}

fn hex(byte: u8) -> Option<(u8, u32)> {
    (byte as char).to_digit(16).map(|digit| (digit as u8, 4))
}

fn base64(byte: u8) -> Option<(u8, u32)> {
    let digit = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    };
    Some((digit, 6))
}

/// What the runs of digits stand for, begun at each of the places where a byte may begin.
fn runs(log: &[u8], digit: fn(u8) -> Option<(u8, u32)>) -> Vec<Vec<u8>> {
    let mut decoded = Vec::new();
    for run in log.split(|byte| digit(*byte).is_none()).filter(|run| run.len() > PIECE) {
        for skipped in 0..4 {
            let (mut bytes, mut kept, mut bits) = (Vec::new(), 0_u32, 0);
            for (value, width) in run[skipped..].iter().filter_map(|byte| digit(*byte)) {
                kept = kept << width | u32::from(value);
                bits += width;
                if bits >= 8 {
                    bits -= 8;
                    bytes.push((kept >> bits) as u8);
                }
            }
            decoded.push(bytes);
        }
    }
    decoded
}

/// Lists of numbers, with `0x` or without, as debug output writes byte slices, on one line or on many.
fn lists(log: &[u8], radix: u32) -> Vec<Vec<u8>> {
    let mut lists = vec![Vec::new()];
    for item in log.split(|byte| *byte == b',') {
        let item = String::from_utf8_lossy(item);
        let first = item.trim_start().split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        let whole = item.trim() == first;
        // The first number of a list stands behind its bracket, and the last before one.
        let last = item.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        match (number(first, radix), whole, number(last, radix)) {
            (Some(byte), true, _) => lists.last_mut().expect("never empty").push(byte),
            (end, _, start) => {
                lists.last_mut().expect("never empty").extend(end);
                lists.push(start.into_iter().collect());
            }
        }
    }
    lists
}

fn number(text: &str, radix: u32) -> Option<u8> {
    match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => u8::from_str_radix(text, radix).ok(),
    }
}

/// The log with the escapes of debug output undone.
fn unescaped(log: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(log.len());
    let mut rest = log;
    while let Some((byte, after)) = rest.split_first() {
        let (plain, used) = match (byte, after) {
            (b'\\', [b'x', high, low, ..]) => match (hex(*high), hex(*low)) {
                (Some((high, _)), Some((low, _))) => (high << 4 | low, 4),
                _ => (b'\\', 1),
            },
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b't', ..]) => (b'\t', 2),
            (b'\\', [b'0', ..]) => (0, 2),
            (b'\\', [quoted @ (b'\\' | b'"' | b'\''), ..]) => (*quoted, 2),
            _ => (*byte, 1),
        };
        bytes.push(plain);
        rest = &rest[used..];
    }
    bytes
}

/// The search itself is worth nothing if it overlooks a form.
#[test]
fn every_form_of_a_secret_is_found() {
    use base64::Engine as _;
    let secret: Vec<u8> = (0..40_u8).map(|n| n.wrapping_mul(37) ^ 0xa5).collect();
    let mut secrets = Secrets::default();
    secrets.add("it", &secret);
    let (piece, bytes) = (&secret[11..23], bytes::Bytes::copy_from_slice(&secret[5..20]));
    let encoded = base64::engine::general_purpose::STANDARD.encode(&secret[1..30]);
    for form in [
        hex::encode(piece),
        hex::encode_upper(piece),
        encoded[3..].to_owned(),
        format!("data: {piece:?}, more"),
        format!("{piece:#?}"),
        format!("{piece:x?}"),
        format!("{piece:#04x?}"),
        format!("{bytes:?}"),
    ] {
        let line = format!("2026-01-01 TRACE x: 17, {form} y=5");
        assert!(!secrets.in_log(line.as_bytes()).is_empty(), "{line}");
    }
    assert!(!secrets.in_log(&[b"raw ", piece].concat()).is_empty());
    let short = format!("group({}…) {:?}", hex::encode(&secret[..4]), &secret[..5]);
    assert!(secrets.in_log(short.as_bytes()).is_empty());
}
