//! Opaque cursors of paged lists. A cursor names the list and the last listed item, never a table key; the item is looked
//! up again with the permissions of the caller.

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::problem::ApiProblem;

/// The longest cursor that is decoded.
const MAX_CURSOR_BYTES: usize = 1024;

/// A cursor: the `next` of the previous page.
#[derive(Debug, ToSchema)]
#[schema(pattern = r"^[A-Za-z0-9_\-]{0,1024}$")]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct CursorText(String);

#[derive(Serialize, Deserialize)]
struct CursorPosition<T> {
    /// The list.
    l: String,
    /// The position in the list.
    p: T,
}

pub(crate) fn write<T: Serialize>(list: &str, place: &T) -> Option<String> {
    let json = serde_json::to_vec(&CursorPosition { l: list.to_owned(), p: place }).ok()?;
    Some(URL_SAFE_NO_PAD.encode(json))
}

/// Whether the text is well formed as a cursor.
fn is_cursor(text: &str) -> bool {
    text.len() <= MAX_CURSOR_BYTES
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// The position in this list, if a cursor was given. A malformed cursor is a bad request; a well-formed one that does not
/// belong to this list is a conflict, because the OpenAPI pattern cannot distinguish the two.
pub(crate) fn read<T: DeserializeOwned>(list: &str, text: Option<&str>) -> Result<Option<T>, ApiProblem> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let detail = "`after` is not the `next` of a page of this list. Start again without `after`.";
    if !is_cursor(text) {
        return Err(ApiProblem::bad_request("BAD_CURSOR", detail));
    }
    let mismatch = || ApiProblem::new(StatusCode::CONFLICT, "BAD_CURSOR", detail);
    let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| mismatch())?;
    let place: CursorPosition<T> = serde_json::from_slice(&json).map_err(|_| mismatch())?;
    if place.l == list { Ok(Some(place.p)) } else { Err(mismatch()) }
}

/// The page size: the requested one, or the default.
pub(crate) fn limit(requested: Option<u32>, default: u32, max: u32) -> Result<u32, ApiProblem> {
    match requested {
        None => Ok(default),
        Some(limit) if (1..=max).contains(&limit) => Ok(limit),
        Some(_) => Err(ApiProblem::bad_request("BAD_QUERY", format!("`limit` must be from 1 to {max}."))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_accepted_only_by_its_own_list() {
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
