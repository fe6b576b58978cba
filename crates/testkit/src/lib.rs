//! Whole-system test kit: backend, clients, links that can be cut, the auditor.
