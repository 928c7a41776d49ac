//! Lenient deserialization: a field that is missing, null or of an undocumented type becomes `None`, because GitHub's payloads drift from
//! their schemas. Parsers report the fields they require. Unused fields are not copied, unlike with `serde_with` (ADR 1).

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use domain::id::Sha;
use jiff::Timestamp;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A string, number, boolean or time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lenient<T>(pub(crate) Option<T>);

/// An object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LenientObject<T>(pub(crate) Option<T>);

/// The valid entries of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LenientList<E: LenientEntry>(pub(crate) Vec<E::Value>);

/// An entry of a list: [`Lenient`] or [`LenientObject`].
pub(crate) trait LenientEntry {
    type Value;
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
    /// Empty if missing.
    pub(crate) fn text(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }

    pub(crate) fn sha(&self) -> Option<Sha> {
        self.text().parse().ok()
    }
}

/// Conversions from JSON scalars.
pub(crate) trait LenientScalar<'de>: Sized {
    fn from_text(_: Cow<'de, str>) -> Option<Self> {
        None
    }
    fn from_number(_: u64) -> Option<Self> {
        None
    }
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

/// RFC 3339, seconds since 1970 as in `push`, or milliseconds as from Jenkins, recognised by their size.
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

macro_rules! scalars_become {
    ($empty:expr) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("anything")
        }
        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
            Ok($empty)
        }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok($empty)
        }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok($empty)
        }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok($empty)
        }
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok($empty)
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($empty)
        }
    };
}

struct LenientObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for LenientObjectVisitor<T> {
    type Value = LenientObject<T>;

    scalars_become!(LenientObject(None));

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<LenientObject<T>, A::Error> {
        skip_seq(seq).map(|()| LenientObject(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LenientObject<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|object| LenientObject(Some(object)))
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

    scalars_become!(LenientList(Vec::new()));

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LenientList<T>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = seq.next_element::<T>()? {
            entries.extend(entry.value());
        }
        Ok(LenientList(entries))
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
    struct Sample<'a> {
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

    fn read(json: &str) -> Sample<'_> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn documented_types_are_read() {
        let sample = read(
            r#"{"text":"a","number":7,"flag":true,"at":"2026-03-02T09:00:00Z","inner":{"name":"b","other":[1,{"x":{}}]},
                "many":[{"name":"c"},{"name":"d"}],"words":["e","f"],"unknown":{"deep":[[[]]]}}"#,
        );
        assert_eq!((sample.text.text(), sample.number.0, sample.flag.0), ("a", Some(7), Some(true)));
        assert_eq!(sample.at.0.unwrap().to_string(), "2026-03-02T09:00:00Z");
        assert_eq!(sample.inner.0.unwrap().name.text(), "b");
        let names: Vec<&str> = sample.many.0.iter().map(|inner| inner.name.text()).collect();
        assert_eq!((names, sample.words.0.join(" ")), (vec!["c", "d"], "e f".to_owned()));
    }

    #[test]
    fn other_types_become_none() {
        // Each field with every type of value except its own.
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
                assert_eq!(read(&format!("{{\"{field}\":{value}}}")), Sample::default(), "{field}: {value}");
            }
        }
        assert_eq!(read("{}"), Sample::default());
        let many = read(r#"{"many":[null,{"name":"c"},7,"x",[{}],{"name":null}]}"#).many.0;
        let names: Vec<Option<&str>> = many.iter().map(|inner| inner.name.0.as_deref()).collect();
        assert_eq!(names, [Some("c"), None]);
    }

    #[test]
    fn time_is_parsed_from_string_or_number() {
        let at = |value: &str| read(&format!("{{\"at\":{value}}}")).at.0.map(|at| at.to_string());
        assert_eq!(at("\"2019-05-15T15:20:55+02:00\"").as_deref(), Some("2019-05-15T13:20:55Z"));
        assert_eq!(at("1557933657").as_deref(), Some("2019-05-15T15:20:57Z"));
        assert_eq!(at("1557933657123").as_deref(), Some("2019-05-15T15:20:57.123Z"));
        assert_eq!(at("\"yesterday\""), None);
        assert_eq!(at("18446744073709551615"), None);
    }

    #[test]
    fn escaped_strings_are_unescaped() {
        assert_eq!(read(r#"{"text":"a\r\n\"b\" \u00e9"}"#).text.text(), "a\r\n\"b\" é");
    }
}
