//! The settings of a port: its descriptors, its mempool and its RSS.

use clap::{Args, value_parser};
use hotloop_dpdk::{MempoolConfig, PortConfig, RssConfig, RssFields};
use std::fmt;

/// Settings of a port, from flags or a configuration. `None` stands for the value of
/// [`PortConfig::default`].
#[derive(Args, Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PortSettings {
    /// RX descriptors of each queue, rounded to what the device supports [default: 1024].
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..))]
    pub rx_descriptors: Option<u16>,
    /// TX descriptors of each queue, rounded to what the device supports [default: 1024].
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..))]
    pub tx_descriptors: Option<u16>,
    /// The least number of mbufs in the mempool of each port; by default, the number that
    /// descriptors, rings and caches can hold.
    #[arg(
        long,
        value_name = "N",
        value_parser = value_parser!(u32).range(1..=i64::from(MempoolConfig::MBUF_COUNT_MAX))
    )]
    pub mbufs: Option<u32>,
    /// Fields that RSS hashes to spread packets over RX queues, as far as the device supports them:
    /// ip, tcp and udp with commas between them, or none, which leaves all packets to queue 0
    /// [default: ip,tcp,udp].
    #[arg(long, value_name = "FIELDS", value_parser = Self::rss_fields)]
    pub rss: Option<RssFields>,
}

impl PortSettings {
    /// These settings, with those of `others` for the ones not set.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            rx_descriptors: self.rx_descriptors.or(others.rx_descriptors),
            tx_descriptors: self.tx_descriptors.or(others.tx_descriptors),
            mbufs: self.mbufs.or(others.mbufs),
            rss: self.rss.or(others.rss),
        }
    }

    /// The port's configuration with these settings.
    #[must_use]
    pub fn port_config(self) -> PortConfig {
        let PortConfig { rx_descriptor_count, tx_descriptor_count, mbuf_count_min, rss, .. } =
            PortConfig::default();
        PortConfig {
            rx_descriptor_count: self.rx_descriptors.unwrap_or(rx_descriptor_count),
            tx_descriptor_count: self.tx_descriptors.unwrap_or(tx_descriptor_count),
            mbuf_count_min: self.mbufs.unwrap_or(mbuf_count_min),
            rss: RssConfig { fields: self.rss.unwrap_or(rss.fields), ..rss },
            ..PortConfig::default()
        }
    }

    /// The RSS fields that `text` names: some of `ip`, `tcp` and `udp` with commas between them, or
    /// `none`.
    ///
    /// # Errors
    /// Any other text, with a remedy.
    pub fn rss_fields(text: &str) -> Result<RssFields, String> {
        if text == "none" {
            return Ok(RssFields::NONE);
        }
        let field = |name: &str| match name {
            "ip" => Ok(RssFields::IP),
            "tcp" => Ok(RssFields::TCP),
            "udp" => Ok(RssFields::UDP),
            _ => Err("write some of ip, tcp and udp, such as ip,tcp, or none".to_owned()),
        };
        text.split(',').try_fold(RssFields::NONE, |fields, name| Ok(fields | field(name)?))
    }

    /// The text that [`rss_fields`](Self::rss_fields) reads as these RSS fields, if any are set.
    #[must_use]
    pub fn rss_text(self) -> Option<String> {
        self.rss.map(|fields| fields.to_string().replace('+', ","))
    }
}

impl fmt::Display for PortSettings {
    /// The settings, each with a comma before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |f: &mut fmt::Formatter<'_>, what: &str, count: Option<u32>| {
            count.map_or(Ok(()), |count| write!(f, ", {what} {count}"))
        };
        number(f, "RX descriptors", self.rx_descriptors.map(u32::from))?;
        number(f, "TX descriptors", self.tx_descriptors.map(u32::from))?;
        number(f, "mbufs", self.mbufs)?;
        self.rss_text().map_or(Ok(()), |fields| write!(f, ", RSS {fields}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_is_as_others_have_it() {
        let one = PortSettings { mbufs: Some(7), rss: Some(RssFields::NONE), ..Default::default() };
        let other = PortSettings { mbufs: Some(8), rx_descriptors: Some(64), ..Default::default() };
        let both = one.or(other);
        assert_eq!((both.mbufs, both.rss), (one.mbufs, one.rss));
        assert_eq!((both.rx_descriptors, both.tx_descriptors), (Some(64), None));
    }

    #[test]
    fn what_is_set_is_written_as_it_is_read() {
        assert_eq!(PortSettings::default().to_string(), "");
        let settings = PortSettings {
            rx_descriptors: Some(64),
            tx_descriptors: Some(128),
            mbufs: Some(9),
            rss: PortSettings::rss_fields("udp,ip").ok(),
        };
        let text = ", RX descriptors 64, TX descriptors 128, mbufs 9, RSS ip,udp";
        assert_eq!(settings.to_string(), text);
        let written = settings.rss_text().unwrap();
        assert_eq!(PortSettings::rss_fields(&written), Ok(settings.rss.unwrap()));
        let none = PortSettings { rss: Some(RssFields::NONE), ..Default::default() };
        assert_eq!(none.rss_text().as_deref(), Some("none"));
    }
}
