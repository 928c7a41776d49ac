//! The upload size of each function: its binary in a zip file.

use std::path::Path;

use serde_json::{Value, json};
pub(crate) use tests::lambda::MOST_ZIPPED_BYTES as LIMIT_BYTES;
use tests::lambda::{FUNCTIONS, zipped_bytes};

/// A function's size.
#[derive(Debug, Clone)]
pub(crate) struct Size {
    pub(crate) name: &'static str,
    pub(crate) bytes: u64,
    pub(crate) zipped: u64,
}

impl Size {
    pub(crate) fn json(&self) -> Value {
        json!({"name": self.name, "bytes": self.bytes, "zipped_bytes": self.zipped})
    }
}

/// Measures all four functions.
pub(crate) fn measure_all(release: &Path) -> Vec<Size> {
    FUNCTIONS.iter().map(|name| measure_one(release, name)).collect()
}

fn measure_one(release: &Path, name: &'static str) -> Size {
    let binary = release.join(name);
    let bytes = std::fs::metadata(&binary).unwrap_or_else(|_| panic!("{} does not exist", binary.display())).len();
    Size { name, bytes, zipped: zipped_bytes(&binary) }
}
