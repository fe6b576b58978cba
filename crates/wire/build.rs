//! Compiles the schema in `proto/` into Rust, without a system `protoc`.

use std::{env, error::Error, fs, path::PathBuf};

use protox::prost::Message as _;

const FILES: &[&str] = &[
    "xmtp/backend/v1/envelope.proto",
    "xmtp/backend/v1/identity.proto",
    "xmtp/backend/v1/publish.proto",
    "xmtp/backend/v1/query.proto",
    "xmtp/backend/v1/subscribe.proto",
    "xmtp/identity/associations/association.proto",
    "xmtp/identity/associations/signature.proto",
    "xmtp/mls/message_contents/content.proto",
    "xmtp/mls/message_contents/group.proto",
    "xmtp/mls/message_contents/welcome.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());

    let schema = protox::compile(FILES, [&root])?;

    let mut bare = schema.clone();
    for file in &mut bare.file {
        file.source_code_info = None;
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("highwater.fds"), bare.encode_to_vec())?;

    // The same content is the same bytes each time: a message's id and its idempotency depend on them.
    tonic_prost_build::configure()
        .btree_map(".xmtp.mls.message_contents")
        .build_client(true)
        .build_server(true)
        .compile_fds(schema)?;
    Ok(())
}
