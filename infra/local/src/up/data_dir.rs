//! The data directory: its lock, its purpose (demo or live), and the small files beside the database.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StartError;

/// A data directory, locked against other processes for the lifetime of this value.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    // The operating system releases the lock when the process ends, even after a crash.
    _lock: File,
}

impl DataDir {
    /// `purpose` is `demo` or `live`: a demo's clock and pull requests must not mix with real ones.
    pub(super) fn open(path: &Path, purpose: &str) -> Result<Self, StartError> {
        let shown = path.display();
        let unusable = |error: std::io::Error| {
            StartError(format!(
                "The data directory {shown} cannot be written: {error}. Choose another one with --data DIR."
            ))
        };
        fs::create_dir_all(path).map_err(unusable)?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join("lock"));
        let lock = lock.map_err(unusable)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StartError(format!(
                "The data directory {shown} is in use by another process: stop that process, or choose another directory with --data DIR."
            )),
            TryLockError::Error(error) => unusable(error),
        })?;
        let data_dir = Self { path: path.to_owned(), _lock: lock };
        match data_dir.read("use")? {
            None => data_dir.write("use", purpose)?,
            Some(recorded) if recorded == purpose => {}
            Some(recorded) => {
                return Err(StartError(format!(
                    "The data directory {shown} was created for {recorded} mode and cannot be used for {purpose} mode: choose another one with --data DIR."
                )));
            }
        }
        Ok(data_dir)
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn read(&self, name: &str) -> Result<Option<String>, StartError> {
        match fs::read_to_string(self.file(name)) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StartError(format!("{} cannot be read: {error}.", self.file(name).display()))),
        }
    }

    /// Writes atomically: if the process dies meanwhile, the old file is intact. Only the owner may read the file.
    fn write(&self, name: &str, text: &str) -> Result<(), StartError> {
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

    pub(super) fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StartError> {
        let Some(text) = self.read(name)? else { return Ok(None) };
        serde_json::from_str(&text).map(Some).map_err(|error| {
            let file = self.file(name);
            StartError(format!("{} is corrupt: {error}. Delete this file, or the whole directory.", file.display()))
        })
    }

    pub(super) fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), StartError> {
        let text = serde_json::to_string(value).map_err(|error| StartError(format!("{name}: {error}")))?;
        self.write(name, &text)
    }
}
