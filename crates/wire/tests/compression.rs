//! What compressed content comes to.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write as _;

use flate2::write::{GzEncoder, ZlibEncoder};
use highwater_wire::{
    CompressionError,
    compression::{content, uncompressed},
    proto::contents::{Compression, EncodedContent},
};

const LIMIT: usize = 16 * 1024 * 1024;

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn encoded(content: Vec<u8>, compression: Option<i32>) -> EncodedContent {
    EncodedContent { content, compression, ..Default::default() }
}

#[test]
fn content_is_read_however_it_was_compressed() {
    for (bytes, compression) in [
        (b"short".to_vec(), None),
        (deflated(b"short"), Some(Compression::Deflate as i32)),
        (gzipped(b"short"), Some(Compression::Gzip as i32)),
    ] {
        assert_eq!(*content(&encoded(bytes, compression)).unwrap(), *b"short", "{compression:?}");
    }
}

#[test]
fn what_is_longer_than_the_limit_is_not_unpacked() {
    for (compress, compression) in
        [(deflated as fn(&[u8]) -> Vec<u8>, Compression::Deflate), (gzipped, Compression::Gzip)]
    {
        let most = compress(&vec![b'x'; LIMIT]);
        assert_eq!(uncompressed(&most, Some(compression as i32)).unwrap().len(), LIMIT);
        let bomb = compress(&vec![b'x'; LIMIT + 1]);
        let refused = uncompressed(&bomb, Some(compression as i32));
        assert!(matches!(refused, Err(CompressionError::TooLong)), "{compression:?}");
    }
}

#[test]
fn what_was_not_compressed_as_it_says_is_refused() {
    let refused = uncompressed(b"short", Some(77));
    assert!(matches!(refused, Err(CompressionError::Unknown { found: 77 })), "{refused:?}");
    let short = gzipped(b"short");
    for bytes in [b"short".to_vec(), deflated(b"short"), short[..short.len() - 1].to_vec()] {
        let refused = uncompressed(&bytes, Some(Compression::Gzip as i32));
        assert!(matches!(refused, Err(CompressionError::Damaged(_))), "{refused:?}");
    }
}
