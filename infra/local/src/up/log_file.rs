//! The log file in the data directory: the functions' log lines and the platform's warnings. It rotates at a size
//! limit.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Above this size the file is renamed to `.former.log` and a new one is started.
const MAX_BYTES: u64 = 8 << 20;

#[derive(Debug)]
struct OpenLogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
}

#[derive(Debug, Clone)]
pub(super) struct LogFile(Arc<Mutex<OpenLogFile>>);

impl LogFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self(Arc::new(Mutex::new(OpenLogFile { path: path.to_owned(), file, bytes }))))
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.bytes > MAX_BYTES {
            fs::rename(&open.path, open.path.with_extension("former.log"))?;
            open.file = OpenOptions::new().create(true).append(true).open(&open.path)?;
            open.bytes = 0;
        }
        let written = open.file.write(bytes)?;
        open.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).file.flush()
    }
}

/// Writes all warnings and errors of this process to the file, with the machine's time. dynoxide's are excluded: it
/// warns of every failed condition, which is an ordinary result here.
pub(super) fn write_warnings_to(file: &LogFile) {
    let file = file.clone();
    let layer = tracing_subscriber::fmt::layer().json().with_writer(move || file.clone());
    let filter = Targets::new().with_default(LevelFilter::WARN).with_target("dynoxide", LevelFilter::OFF);
    let _ = tracing_subscriber::registry().with(layer).with(filter).try_init();
}
