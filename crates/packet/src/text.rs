//! Values that serde reads from their texts, and writes as them.

use std::{fmt::Display, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::{port_range::PortRange, prefix::Prefix};

/// Reads a text that parses as a `T`.
fn parsed<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

impl Serialize for PortRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_the_texts_that_they_are_read_from() {
        let values = (Prefix::host([192, 0, 2, 1].into()), PortRange::new(80, 90).unwrap());
        let json = r#"["192.0.2.1","80-90"]"#;
        assert_eq!(serde_json::to_string(&values).unwrap(), json);
        assert_eq!(serde_json::from_str::<(Prefix, PortRange)>(json).unwrap(), values);
    }

    #[test]
    fn other_texts_are_refused_with_a_correct_one() {
        let error = serde_json::from_str::<Prefix>(r#""10.0.0.1/8""#).unwrap_err().to_string();
        assert!(error.contains("write 10.0.0.0/8"), "{error}");
        let error = serde_json::from_str::<PortRange>(r#""90-80""#).unwrap_err().to_string();
        assert!(error.contains("write 80 or 8000-8999"), "{error}");
        assert!(serde_json::from_str::<PortRange>("80").is_err());
    }
}
