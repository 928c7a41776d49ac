//! The data directory: whose it is, that nobody else uses it, and the few small files beside the database.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StartError;

/// What a directory is used for. A demo's clock and a demo's pull requests must not meet the real ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The pretended world.
    Demo,
    /// A real GitHub.
    Live,
}

impl Purpose {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::Live => "live",
        }
    }
}

/// A directory of our own, for as long as this lives.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    // Its lock ends with the process, however that ends.
    _lock: File,
}

impl DataDir {
    /// Takes a directory, making it if need be.
    pub(super) fn take(path: &Path, used_for: Purpose) -> Result<Self, StartError> {
        let shown = path.display();
        let unusable = |error: std::io::Error| {
            StartError(format!(
                "The data directory {shown} cannot be written: {error}. Give another one with --data DIR."
            ))
        };
        fs::create_dir_all(path).map_err(unusable)?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join("lock"));
        let lock = lock.map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StartError(format!(
                    "The data directory {shown} is in use by another process: stop that one, or give another directory with --data DIR."
                )));
            }
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        let data_dir = Self { path: path.to_owned(), _lock: lock };
        match data_dir.text("use")? {
            None => data_dir.keep("use", used_for.name())?,
            Some(kept) if kept == used_for.name() => {}
            Some(kept) => {
                return Err(StartError(format!(
                    "The data directory {shown} belongs to a {kept} and cannot be used for a {}: give another one with --data DIR.",
                    used_for.name()
                )));
            }
        }
        Ok(data_dir)
    }

    /// A file in it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What a small file says; nothing if it is not there.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, StartError> {
        match fs::read_to_string(self.file(name)) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StartError(format!("{} cannot be read: {error}.", self.file(name).display()))),
        }
    }

    /// Keeps a small file: all of it or, if the process dies meanwhile, what was there before. Only the owner may read it.
    pub(super) fn keep(&self, name: &str, text: &str) -> Result<(), StartError> {
        let (file, fresh) = (self.file(name), self.file(&format!("{name}.new")));
        let unwritable = |error| StartError(format!("{} cannot be written: {error}.", file.display()));
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut opened = options.open(&fresh).map_err(unwritable)?;
        opened.write_all(text.as_bytes()).and_then(|()| opened.sync_data()).map_err(unwritable)?;
        fs::rename(&fresh, &file).map_err(unwritable)
    }

    /// A small file of JSON; nothing if it is not there.
    pub(super) fn json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StartError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|error| {
            StartError(format!("{} is damaged: {error}. Remove it, or the whole directory.", self.file(name).display()))
        })
    }

    /// Keeps a small file of JSON.
    pub(super) fn keep_json(&self, name: &str, value: &impl Serialize) -> Result<(), StartError> {
        let text = serde_json::to_string(value).map_err(|error| StartError(format!("{name}: {error}")))?;
        self.keep(name, &text)
    }
}
