//! A triggered build as a run stores it between two polls: first a queue item, then a build number. Readable text, because users see it in
//! the run's steps.

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;

/// Poll interval until the queue item has become a build. Usually a webhook arrives first.
pub const POLL_INTERVAL: SignedDuration = SignedDuration::from_mins(2);

/// A queue item or a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildHandle {
    /// The queue item's id, and Jenkins' reason for the wait.
    Item(u64, Option<String>),
    /// The build number.
    Build(u64),
}

const ITEM: &str = "queue item ";
const BUILD: &str = "build ";

impl fmt::Display for BuildHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Item(id, None) => write!(f, "{ITEM}{id}"),
            Self::Item(id, Some(why)) => write!(f, "{ITEM}{id}: {why}"),
            Self::Build(number) => write!(f, "{BUILD}{number}"),
        }
    }
}

/// The text is neither a queue item nor a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidBuildHandle;

impl FromStr for BuildHandle {
    type Err = InvalidBuildHandle;

    fn from_str(text: &str) -> Result<Self, InvalidBuildHandle> {
        if let Some(number) = text.strip_prefix(BUILD) {
            return number.parse().map(Self::Build).map_err(|_| InvalidBuildHandle);
        }
        let item = text.strip_prefix(ITEM).ok_or(InvalidBuildHandle)?;
        let (id, why) = item.split_once(": ").map_or((item, None), |(id, why)| (id, Some(why.to_owned())));
        id.parse().map(|id| Self::Item(id, why)).map_err(|_| InvalidBuildHandle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_roundtrips() {
        let why = Some("Waiting for next available executor on ‘linux’: 3".to_owned());
        for handle in [BuildHandle::Item(17, None), BuildHandle::Item(17, why), BuildHandle::Build(4)] {
            assert_eq!(handle.to_string().parse(), Ok(handle));
        }
        for text in ["", "queue item", "queue item x", "build ", "build 4th", "done"] {
            assert_eq!(text.parse::<BuildHandle>(), Err(InvalidBuildHandle), "{text}");
        }
    }
}
