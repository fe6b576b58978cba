//! Tests with real groups over real stores: every client has its own encrypted database, and every step loads its
//! group afresh.

mod failures;
mod joins;
mod key_packages;
mod lifecycle;
mod own_commits;
mod policy;
mod support;
mod welcomes;
