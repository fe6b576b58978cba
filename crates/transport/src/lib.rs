//! One backend connection: reads, publishes and one receiver session.
