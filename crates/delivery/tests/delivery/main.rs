//! Local delivery through its public interface, over real encrypted databases.

mod acknowledgement;
mod consumer;
mod conversations;
mod history;
mod messages;
mod model;
mod ownership;
mod replay;
mod support;
