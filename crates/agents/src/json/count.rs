use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A count. JavaScript may write `12`, `12.0` or `null`; anything else is 0, so that a wrong figure
/// does not cost the line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count(pub(crate) u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyNumber;

        impl<'de> Visitor<'de> for AnyNumber {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a count")
            }

            fn visit_u64<E>(self, count: u64) -> Result<Count, E> {
                Ok(Count(count))
            }

            fn visit_i64<E>(self, count: i64) -> Result<Count, E> {
                Ok(Count(u64::try_from(count).unwrap_or(0)))
            }

            fn visit_f64<E>(self, count: f64) -> Result<Count, E> {
                // The cast saturates and turns NaN into 0.
                Ok(Count(count as u64))
            }

            fn visit_unit<E>(self) -> Result<Count, E> {
                Ok(Count(0))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Count, E> {
                Ok(Count(0))
            }

            fn visit_str<E>(self, _: &str) -> Result<Count, E> {
                Ok(Count(0))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Count, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Count(0))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Count, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Count(0))
            }
        }

        deserializer.deserialize_any(AnyNumber)
    }
}
