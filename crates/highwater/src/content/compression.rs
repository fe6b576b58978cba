//! Content that came compressed.

use std::borrow::Cow;
use std::io::Read as _;

use highwater_wire::proto::contents::{Compression, EncodedContent};

use super::ContentError;

/// Decompression stops here, whatever the sender claims.
const MAX_DECOMPRESSED_BYTES: u64 = 16 * 1024 * 1024;

/// The bytes of a content, uncompressed.
pub(super) fn content(encoded: &EncodedContent) -> Result<Cow<'_, [u8]>, ContentError> {
    match encoded.compression {
        None => Ok(Cow::Borrowed(&encoded.content)),
        compressed => uncompressed(&encoded.content, compressed).map(Cow::Owned),
    }
}

pub(super) fn uncompressed(bytes: &[u8], compression: Option<i32>) -> Result<Vec<u8>, ContentError> {
    let Some(compression) = compression else {
        return Ok(bytes.to_vec());
    };
    match Compression::try_from(compression) {
        Ok(Compression::Deflate) => inflate(flate2::read::ZlibDecoder::new(bytes)),
        Ok(Compression::Gzip) => inflate(flate2::read::GzDecoder::new(bytes)),
        Err(_) => Err(ContentError::Malformed(format!("unknown compression {compression}"))),
    }
}

fn inflate(reader: impl std::io::Read) -> Result<Vec<u8>, ContentError> {
    let mut bytes = Vec::new();
    let read = reader
        .take(MAX_DECOMPRESSED_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| ContentError::Malformed(error.to_string()))?;
    if read as u64 > MAX_DECOMPRESSED_BYTES { Err(ContentError::TooLong) } else { Ok(bytes) }
}
