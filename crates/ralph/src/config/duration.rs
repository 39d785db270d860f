//! Durations in settings.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration as Time;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// For the check.
pub(crate) const FORMAT: &str = "ralph-duration";

/// Keeps computed deadlines from overflowing.
const MAX_DURATION: Time = Time::from_secs(100 * 365 * 24 * 60 * 60);

const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// `"6h"`, `"1h30m"`, `"90s"`, or a number of seconds; at most a hundred years.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(Time);

impl Duration {
    pub const ZERO: Duration = Duration(Time::ZERO);

    pub const fn from_secs(seconds: u32) -> Self {
        Duration(Time::from_secs(seconds as u64))
    }

    pub fn get(self) -> Time {
        self.0
    }

    pub fn is_zero(self) -> bool {
        self.0.is_zero()
    }

    /// Zero means "no limit".
    pub fn limit(self) -> Option<Time> {
        (!self.is_zero()).then_some(self.0)
    }

    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.starts_with(|c: char| c.is_ascii_digit())
            && let Ok(seconds) = text.parse::<f64>()
        {
            return Self::from_seconds(seconds);
        }
        let mut rest = text;
        let mut total: u64 = 0;
        // Each unit once, from large to small: "30m1h" is probably a mistake.
        for (name, millis) in UNITS {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let after = rest[digits..].strip_prefix(name);
            let Some(after) = after.filter(|it| !it.starts_with(char::is_alphabetic)) else {
                continue;
            };
            let number: u64 = rest[..digits].parse().ok()?;
            total = total.checked_add(number.checked_mul(millis)?)?;
            rest = after.trim_start();
        }
        let is_read = rest.is_empty() && !text.is_empty();
        Self::within_bounds(Time::from_millis(total)).filter(|_| is_read)
    }

    fn from_seconds(seconds: f64) -> Option<Self> {
        Time::try_from_secs_f64(seconds).ok().and_then(Self::within_bounds)
    }

    fn within_bounds(time: Time) -> Option<Self> {
        (time <= MAX_DURATION).then_some(Duration(time))
    }

    pub(crate) fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::from_seconds(number.as_f64()?),
            _ => None,
        }
    }

    pub(crate) fn as_seconds<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.subsec_nanos() == 0 {
            serializer.serialize_u64(self.0.as_secs())
        } else {
            serializer.serialize_f64(self.0.as_secs_f64())
        }
    }

    #[expect(clippy::ref_option, reason = "the shape that serde asks for")]
    pub(crate) fn maybe_as_seconds<S: Serializer>(
        value: &Option<Self>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(duration) => duration.as_seconds(serializer),
            None => serializer.serialize_none(),
        }
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_millis();
        if rest == 0 {
            return f.write_str("0s");
        }
        for (name, size) in UNITS {
            let size = u128::from(size);
            if rest >= size {
                write!(f, "{}{name}", rest / size)?;
                rest %= size;
            }
        }
        Ok(())
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_value(&value).ok_or_else(|| serde::de::Error::custom("not a duration"))
    }
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "number"],
            "format": FORMAT,
            "pattern": "^\\s*(?=\\d)(\\d+(\\.\\d+)?|(\\d+d\\s*)?(\\d+h\\s*)?(\\d+m\\s*)?(\\d+s\\s*)?(\\d+ms\\s*)?)$",
            "minimum": 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_parses_common_notations() {
        for (text, ms) in [
            ("6h", 21_600_000),
            ("90m", 5_400_000),
            ("1h30m", 5_400_000),
            (" 1h 30m ", 5_400_000),
            ("2d", 172_800_000),
            ("500ms", 500),
            ("1m500ms", 60_500),
            ("90", 90_000),
            ("0.5", 500),
            ("0", 0),
            ("36500d", 3_153_600_000_000),
        ] {
            let duration = Duration::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(duration.get().as_millis(), ms, "{text}");
        }
        for text in [
            "",
            " ",
            "h",
            "6 h",
            "6hours",
            "-1",
            "-1h",
            "30m1h",
            "1h1h",
            "1e99",
            "inf",
            "NaN",
            "6h30",
            "36501d",
            "99999999999999999999h",
            "18446744073709551615d",
            "1.5h",
            "６h",
        ] {
            assert_eq!(Duration::parse(text), None, "{text}");
        }
    }

    #[test]
    fn duration_round_trips_through_display() {
        for text in ["6h", "1h30m", "1d2h3m4s5ms", "0s"] {
            assert_eq!(Duration::parse(text).unwrap().to_string(), text);
        }
    }

    proptest::proptest! {
        #[test]
        fn duration_parser_accepts_only_what_round_trips(text in "[0-9a-z .\\-é]{0,20}") {
            if let Some(duration) = Duration::parse(&text) {
                let millis = Time::from_millis(duration.get().as_millis() as u64);
                proptest::prop_assert_eq!(
                    Duration::parse(&duration.to_string()), Some(Duration(millis))
                );
            }
        }
    }
}
