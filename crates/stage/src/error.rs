//! One error type for everything that can prevent an engine from running.

use std::fmt;

/// Any error of a factory, a device or the engine. It prints as its message with its causes, also
/// if `main` returns it.
pub struct Error(Box<dyn std::error::Error + Send + Sync>);

impl Error {
    /// An error that consists of its message.
    #[must_use]
    pub fn message(text: impl Into<String>) -> Self {
        Self(text.into().into())
    }

    /// The inner error, for callers that handle some kinds differently.
    #[must_use]
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
