//! Where a page ended, as a word that means nothing to whoever passes it back. It names what was listed, never a row, and
//! what list it is of; what it names is looked at again under the caller's own scope.

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::problem::Problem;

/// The longest one that is looked at.
const LONGEST: usize = 1024;

/// A place in a list: what a page gave as its `next`, and nothing to be made up.
#[derive(Debug, ToSchema)]
#[schema(pattern = r"^[A-Za-z0-9_\-]{0,1024}$")]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct PlaceText(String);

#[derive(Serialize, Deserialize)]
struct Place<T> {
    /// Which list.
    l: String,
    /// Where in it.
    p: T,
}

pub(crate) fn write<T: Serialize>(list: &str, place: &T) -> Option<String> {
    let json = serde_json::to_vec(&Place { l: list.to_owned(), p: place }).ok()?;
    Some(URL_SAFE_NO_PAD.encode(json))
}

/// What is written as a place.
fn is_place(text: &str) -> bool {
    text.len() <= LONGEST && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// The place in this list, if one was given. What is not written as one is a bad request. What is, but leads nowhere here (it
/// is of another list, or made up), is a conflict with what there is: no description could tell the two apart.
pub(crate) fn read<T: DeserializeOwned>(list: &str, text: Option<&str>) -> Result<Option<T>, Problem> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let detail = "`after` is not the `next` of a page of this list: begin without it.";
    if !is_place(text) {
        return Err(Problem::bad_request("BAD_CURSOR", detail));
    }
    let elsewhere = || Problem::new(StatusCode::CONFLICT, "BAD_CURSOR", detail);
    let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| elsewhere())?;
    let place: Place<T> = serde_json::from_slice(&json).map_err(|_| elsewhere())?;
    if place.l == list { Ok(Some(place.p)) } else { Err(elsewhere()) }
}

/// How many of a list: asked for, or as many as is usual, and never more than fit.
pub(crate) fn limit(asked: Option<u32>, usual: u32, most: u32) -> Result<u32, Problem> {
    match asked {
        None => Ok(usual),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(_) => Err(Problem::bad_request("BAD_QUERY", format!("`limit` is from 1 to {most}."))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_back_and_of_its_own_list_only() {
        let place = write("prs", &("acme/shop".to_owned(), 7_u64)).unwrap();
        assert_eq!(read::<(String, u64)>("prs", Some(&place)).unwrap(), Some(("acme/shop".to_owned(), 7)));
        assert_eq!(read::<(String, u64)>("prs", None).unwrap(), None);
        for (list, text, status) in [
            ("stale", place.as_str(), 409),
            ("prs", "x", 409),
            ("prs", "eyJsIjoicHJzIiwicCI6MX0", 409),
            ("prs", "{}", 400),
            ("prs", &"A".repeat(5000), 400),
        ] {
            let problem = read::<(String, u64)>(list, Some(text)).unwrap_err();
            assert_eq!((problem.code, problem.status), ("BAD_CURSOR", status), "{text}");
        }
    }
}
