//! How large the functions are, as they are uploaded: each binary alone in a zip.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// What a function may weigh, zipped.
pub(crate) const LIMIT_BYTES: u64 = 4_000_000;
/// The four.
pub(crate) const FUNCTIONS: [&str; 4] = ["webhook", "car-bridge", "reconciler", "admin"];

const ZIP: &str = r"
import io, sys, zipfile
out = io.BytesIO()
with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    archive.write(sys.argv[1], 'bootstrap')
print(len(out.getvalue()))
";

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

/// Weighs all four.
pub(crate) fn weigh(release: &Path) -> Vec<Size> {
    FUNCTIONS.iter().map(|name| weigh_one(release, name)).collect()
}

fn weigh_one(release: &Path, name: &'static str) -> Size {
    let binary = release.join(name);
    let bytes = std::fs::metadata(&binary).unwrap_or_else(|_| panic!("{} is not there", binary.display())).len();
    let zipped = Command::new("python3").args(["-c", ZIP]).arg(&binary).output().expect("python3");
    let text = String::from_utf8_lossy(&zipped.stdout).trim().to_owned();
    Size { name, bytes, zipped: text.parse().unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&zipped.stderr))) }
}
