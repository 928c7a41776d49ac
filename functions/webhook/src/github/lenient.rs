//! Reading what others send without breaking over it. GitHub's payloads drift from their schemas, so a field that is
//! missing, null or of another type than documented is simply not there; what is needed and not there is named by
//! whoever needs it. Nothing is copied that is not asked for, which is why this is not `serde_with` (ADR 0027).

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use domain::id::Sha;
use jiff::Timestamp;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A text, a number, a yes or no, or a time, if it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lenient<T>(pub(crate) Option<T>);

/// An object, if it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LenientObject<T>(pub(crate) Option<T>);

/// What is there of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LenientList<E: LenientEntry>(pub(crate) Vec<E::Value>);

/// Something that may be there or not: [`Lenient`] or [`LenientObject`].
pub(crate) trait LenientEntry {
    /// What it is, if it is there.
    type Value;
    /// What it is, if it is there.
    fn value(self) -> Option<Self::Value>;
}

impl<T> LenientEntry for Lenient<T> {
    type Value = T;
    fn value(self) -> Option<T> {
        self.0
    }
}

impl<T> LenientEntry for LenientObject<T> {
    type Value = T;
    fn value(self) -> Option<T> {
        self.0
    }
}

impl<T> Default for Lenient<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Default for LenientObject<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<E: LenientEntry> Default for LenientList<E> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl Lenient<Cow<'_, str>> {
    /// The text; empty if there is none.
    pub(crate) fn text(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }

    /// The commit it names.
    pub(crate) fn sha(&self) -> Option<Sha> {
        self.text().parse().ok()
    }
}

/// What JSON's scalars may be taken for.
pub(crate) trait LenientScalar<'de>: Sized {
    fn from_text(_: Cow<'de, str>) -> Option<Self> {
        None
    }
    /// From a number that is not negative.
    fn from_number(_: u64) -> Option<Self> {
        None
    }
    /// From `true` or `false`.
    fn from_flag(_: bool) -> Option<Self> {
        None
    }
}

impl<'de: 'a, 'a> LenientScalar<'de> for Cow<'a, str> {
    fn from_text(text: Cow<'de, str>) -> Option<Self> {
        Some(text)
    }
}

impl LenientScalar<'_> for u64 {
    fn from_number(number: u64) -> Option<Self> {
        Some(number)
    }
}

impl LenientScalar<'_> for bool {
    fn from_flag(flag: bool) -> Option<Self> {
        Some(flag)
    }
}

/// RFC 3339, or seconds since 1970, as `push` has it; so large a number of seconds is milliseconds, as Jenkins has it.
impl<'de> LenientScalar<'de> for Timestamp {
    fn from_text(text: Cow<'de, str>) -> Option<Self> {
        text.parse().ok()
    }

    fn from_number(number: u64) -> Option<Self> {
        const YEAR_5000_SECS: i64 = 95_617_584_000;
        let number = i64::try_from(number).ok()?;
        if number < YEAR_5000_SECS {
            Timestamp::from_second(number).ok()
        } else {
            Timestamp::from_millisecond(number).ok()
        }
    }
}

struct LenientVisitor<T>(PhantomData<T>);

impl<'de, T: LenientScalar<'de>> Visitor<'de> for LenientVisitor<T> {
    type Value = Lenient<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Lenient<T>, E> {
        Ok(Lenient(T::from_text(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Lenient<T>, E> {
        Ok(Lenient(T::from_text(Cow::Owned(text.to_owned()))))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Lenient<T>, E> {
        Ok(Lenient(T::from_number(number)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Lenient<T>, E> {
        Ok(Lenient(u64::try_from(number).ok().and_then(T::from_number)))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Lenient<T>, E> {
        Ok(Lenient(None))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Lenient<T>, E> {
        Ok(Lenient(T::from_flag(flag)))
    }

    fn visit_unit<E>(self) -> Result<Lenient<T>, E> {
        Ok(Lenient(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Lenient<T>, A::Error> {
        skip_seq(seq).map(|()| Lenient(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Lenient<T>, A::Error> {
        skip_map(map).map(|()| Lenient(None))
    }
}

impl<'de, T: LenientScalar<'de>> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LenientVisitor(PhantomData))
    }
}

fn skip_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<(), A::Error> {
    while seq.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

fn skip_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<(), A::Error> {
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

/// What everything that is not wanted comes to.
macro_rules! nothing_from_scalars {
    ($nothing:expr) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("anything")
        }
        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
            Ok($nothing)
        }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok($nothing)
        }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok($nothing)
        }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok($nothing)
        }
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok($nothing)
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($nothing)
        }
    };
}

struct LenientObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for LenientObjectVisitor<T> {
    type Value = LenientObject<T>;

    nothing_from_scalars!(LenientObject(None));

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<LenientObject<T>, A::Error> {
        skip_seq(seq).map(|()| LenientObject(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LenientObject<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|part| LenientObject(Some(part)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LenientObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LenientObjectVisitor(PhantomData))
    }
}

struct LenientListVisitor<E>(PhantomData<E>);

impl<'de, T: LenientEntry + Deserialize<'de>> Visitor<'de> for LenientListVisitor<T> {
    type Value = LenientList<T>;

    nothing_from_scalars!(LenientList(Vec::new()));

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LenientList<T>, A::Error> {
        let mut many = Vec::new();
        while let Some(entry) = seq.next_element::<T>()? {
            many.extend(entry.value());
        }
        Ok(LenientList(many))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LenientList<T>, A::Error> {
        skip_map(map).map(|()| LenientList(Vec::new()))
    }
}

impl<'de, T: LenientEntry + Deserialize<'de>> Deserialize<'de> for LenientList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LenientListVisitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize, PartialEq, Default)]
    #[serde(default, bound(deserialize = "'de: 'a"))]
    struct Thing<'a> {
        text: Lenient<Cow<'a, str>>,
        number: Lenient<u64>,
        flag: Lenient<bool>,
        at: Lenient<Timestamp>,
        inner: LenientObject<Inner<'a>>,
        many: LenientList<LenientObject<Inner<'a>>>,
        words: LenientList<Lenient<Cow<'a, str>>>,
    }

    #[derive(Debug, serde::Deserialize, PartialEq, Default)]
    #[serde(default, bound(deserialize = "'de: 'a"))]
    struct Inner<'a> {
        name: Lenient<Cow<'a, str>>,
    }

    fn read(json: &str) -> Thing<'_> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_is_as_documented_is_read() {
        let thing = read(
            r#"{"text":"a","number":7,"flag":true,"at":"2026-03-02T09:00:00Z","inner":{"name":"b","other":[1,{"x":{}}]},
                "many":[{"name":"c"},{"name":"d"}],"words":["e","f"],"unknown":{"deep":[[[]]]}}"#,
        );
        assert_eq!((thing.text.text(), thing.number.0, thing.flag.0), ("a", Some(7), Some(true)));
        assert_eq!(thing.at.0.unwrap().to_string(), "2026-03-02T09:00:00Z");
        assert_eq!(thing.inner.0.unwrap().name.text(), "b");
        let names: Vec<&str> = thing.many.0.iter().map(|inner| inner.name.text()).collect();
        assert_eq!((names, thing.words.0.join(" ")), (vec!["c", "d"], "e f".to_owned()));
    }

    #[test]
    fn what_is_not_as_documented_is_not_there() {
        // Each field with every kind of value that it is not.
        for (field, fitting) in [
            ("text", "\"x\""),
            ("number", "3"),
            ("flag", "true"),
            ("at", "3"),
            ("inner", "{\"a\":[{}]}"),
            ("many", "[[{\"a\":1}],2]"),
            ("words", "[[{\"a\":1}],2]"),
        ] {
            let values =
                ["null", "3", "-1", "1.5", "18446744073709551616", "\"x\"", "true", "[[{\"a\":1}],2]", "{\"a\":[{}]}"];
            for value in values.into_iter().filter(|value| *value != fitting) {
                assert_eq!(read(&format!("{{\"{field}\":{value}}}")), Thing::default(), "{field}: {value}");
            }
        }
        assert_eq!(read("{}"), Thing::default());
        let many = read(r#"{"many":[null,{"name":"c"},7,"x",[{}],{"name":null}]}"#).many.0;
        let names: Vec<Option<&str>> = many.iter().map(|inner| inner.name.0.as_deref()).collect();
        assert_eq!(names, [Some("c"), None]);
    }

    #[test]
    fn a_time_is_a_text_or_a_number() {
        let at = |value: &str| read(&format!("{{\"at\":{value}}}")).at.0.map(|at| at.to_string());
        assert_eq!(at("\"2019-05-15T15:20:55+02:00\"").as_deref(), Some("2019-05-15T13:20:55Z"));
        assert_eq!(at("1557933657").as_deref(), Some("2019-05-15T15:20:57Z"));
        assert_eq!(at("1557933657123").as_deref(), Some("2019-05-15T15:20:57.123Z"));
        assert_eq!(at("\"yesterday\""), None);
        assert_eq!(at("18446744073709551615"), None);
    }

    #[test]
    fn escaped_texts_are_read_too() {
        assert_eq!(read(r#"{"text":"a\r\n\"b\" \u00e9"}"#).text.text(), "a\r\n\"b\" é");
    }
}
