//! What an order has become at Jenkins, as a run remembers it between two looks: a queue item, then a build. Readable, since people
//! see it in the run.

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;

/// An order is looked at again after so long, until it is a build. Most are proven before.
pub const LOOK_AFTER: SignedDuration = SignedDuration::from_mins(2);

/// Where an order stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// It waits in the queue, under this number; why, if Jenkins said so.
    Item(u64, Option<String>),
    /// It has become the build of this number.
    Build(u64),
}

const ITEM: &str = "queue item ";
const BUILD: &str = "build ";

impl fmt::Display for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Item(id, None) => write!(f, "{ITEM}{id}"),
            Self::Item(id, Some(why)) => write!(f, "{ITEM}{id}: {why}"),
            Self::Build(number) => write!(f, "{BUILD}{number}"),
        }
    }
}

/// It says nothing about Jenkins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotFollowed;

impl FromStr for Followed {
    type Err = NotFollowed;

    fn from_str(text: &str) -> Result<Self, NotFollowed> {
        if let Some(number) = text.strip_prefix(BUILD) {
            return number.parse().map(Self::Build).map_err(|_| NotFollowed);
        }
        let item = text.strip_prefix(ITEM).ok_or(NotFollowed)?;
        let (id, why) = item.split_once(": ").map_or((item, None), |(id, why)| (id, Some(why.to_owned())));
        id.parse().map(|id| Self::Item(id, why)).map_err(|_| NotFollowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_back() {
        let why = Some("Waiting for next available executor on ‘linux’: 3".to_owned());
        for followed in [Followed::Item(17, None), Followed::Item(17, why), Followed::Build(4)] {
            assert_eq!(followed.to_string().parse(), Ok(followed));
        }
        for text in ["", "queue item", "queue item x", "build ", "build 4th", "done"] {
            assert_eq!(text.parse::<Followed>(), Err(NotFollowed), "{text}");
        }
    }
}
