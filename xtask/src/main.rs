//! Every developer and CI command.
fn main() {}
