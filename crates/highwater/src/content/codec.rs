//! Types of an app's own.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{ContentError, ContentType};

/// A codec's failure, in its own words.
pub type CodecError = Box<dyn std::error::Error + Send + Sync>;

/// Content as a codec makes and reads it: everything but the type, which is the codec's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// The type's parameters.
    pub parameters: BTreeMap<String, String>,
    /// Text to show in apps that don't know the type.
    pub fallback: Option<String>,
    /// The content's bytes, uncompressed.
    pub bytes: Vec<u8>,
}

/// Reads and makes content of one type, for one app. Given to a client when it is opened
/// ([`ClientBuilder::codec`](crate::ClientBuilder::codec)).
///
/// A codec that fails or panics stops nothing: the message is handed out as [`Content::Custom`](crate::Content::Custom)
/// with the error and the bytes.
pub trait Codec: Send + Sync + 'static {
    /// What the app has of such content.
    type Value: Send + Sync + 'static;

    /// The type. Content matches with the same authority, name and major version, whatever the minor one.
    fn content_type(&self) -> ContentType;

    /// Reads content of this type, from anybody.
    fn decode(&self, content: &Encoded) -> Result<Self::Value, CodecError>;

    /// Makes content of this type.
    fn encode(&self, value: &Self::Value) -> Result<Encoded, CodecError>;
}

/// A codec of any value.
pub(crate) trait AnyCodec: Send + Sync {
    fn names(&self) -> ContentType;
    fn read(&self, content: &Encoded) -> Result<Arc<dyn Any + Send + Sync>, CodecError>;
}

impl<C: Codec> AnyCodec for C {
    fn names(&self) -> ContentType {
        self.content_type()
    }

    fn read(&self, content: &Encoded) -> Result<Arc<dyn Any + Send + Sync>, CodecError> {
        Ok(Arc::new(self.decode(content)?))
    }
}

/// The codecs of one client, by authority, name and major version.
#[derive(Clone, Default)]
pub(crate) struct Codecs(BTreeMap<(String, String, u32), Arc<dyn AnyCodec>>);

impl Codecs {
    /// Takes the codecs up.
    ///
    /// # Errors
    /// The type of one that has a codec already: another of the app's, or one of this library's own.
    pub(crate) fn of(codecs: Vec<Box<dyn AnyCodec>>) -> Result<Self, ContentType> {
        let mut taken = BTreeMap::new();
        for codec in codecs {
            let named = codec.names();
            let key = (named.authority.clone(), named.name.clone(), named.major);
            let codec: Arc<dyn AnyCodec> = codec.into();
            if super::standard::is_read_here(&named) || taken.insert(key, codec).is_some() {
                return Err(named);
            }
        }
        Ok(Self(taken))
    }

    pub(super) fn find(&self, named: &ContentType) -> Option<&dyn AnyCodec> {
        self.0.get(&(named.authority.clone(), named.name.clone(), named.major)).map(AsRef::as_ref)
    }
}

/// Runs app code that may do anything but stop the stream (PROC-045).
pub(super) fn guarded<T>(run: impl FnOnce() -> Result<T, CodecError>) -> Result<T, ContentError> {
    // What the error says is app code too.
    let run = || run().map_err(|error| ContentError::Codec(error.to_string()));
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(ContentError::CodecPanicked))
}
