use highwater_store::StoreError;

/// Why an MLS operation of this client failed. Nothing durable changed when the caller's transaction rolls back, as it
/// does for every error.
///
/// What a *received* message does wrong is an [`InputFailure`](crate::InputFailure), what a Welcome does wrong a
/// [`WelcomeFailure`](crate::WelcomeFailure).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MlsError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// [`create_installation`](crate::create_installation) comes first.
    #[error("this database has no installation key yet")]
    NoInstallation,
    /// [`set_registration`](crate::set_registration) comes first.
    #[error("this installation belongs to no inbox yet")]
    NoInbox,
    /// The group has a row already; a new group needs a fresh id.
    #[error("a group with this id exists already")]
    GroupExists,
    /// This installation was removed from the group. Only a new Welcome helps.
    #[error("this installation is not a member of the group any more")]
    Inactive,
    /// The group requires a newer version of this client; upgrade it.
    #[error("the group requires version {0}")]
    GroupVersion(String),
    /// A proposal of another member must be committed before anything can be sent; commit
    /// [`Change::Update`](crate::Change::Update), or wait for a commit.
    #[error("proposals of this epoch are not committed yet")]
    ProposalsPending,
    /// An own commit waits for its echo. Merge or clear it first.
    #[error("an own commit is pending")]
    CommitPending,
    /// The change can't be made in this group as it stands.
    #[error("the change is not possible: {0}")]
    InvalidChange(String),
    /// A key package can't be used to add its installation.
    #[error("the key package is not usable: {0}")]
    KeyPackage(&'static str),
    /// A stored value can't be read: the database was written by something else, or damaged.
    #[error("a stored MLS value is damaged: {0}")]
    Damaged(&'static str),
    /// OpenMLS failed for a reason that lies neither in the input nor in the database.
    #[error("MLS failed: {0}")]
    Library(String),
}

impl MlsError {
    /// Whether the same call can succeed later without a change of its arguments.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::ProposalsPending | Self::CommitPending => true,
            _ => false,
        }
    }

    pub(crate) fn library(error: impl std::fmt::Display) -> Self {
        Self::Library(error.to_string())
    }
}

impl From<sqlx::Error> for MlsError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(StoreError::from(error))
    }
}
