//! Device strings: a device, its bus, and its driver's arguments.

pub(crate) mod driver;
#[cfg(any(test, feature = "fuzzing"))]
mod kvargs;
mod values;

use crate::Error;
use driver::Driver;
use hotloop_dpdk_sys as sys;
use std::ffi::CString;
use std::fmt;

#[cfg(feature = "fuzzing")]
pub use kvargs::check_device_string;
pub(crate) use values::check_captures;

/// A checked device string: `net_null0,size=64` or `0000:01:00.0`.
///
/// DPDK parses the string again, by rules of its own. So DPDK doesn't get the original text, but a
/// string made from the parts that were found and checked here, which hold nothing that DPDK would
/// take apart further: it ends a key at any `=`, however many there are, lets a `[` hide commas up
/// to the next `]`, and starts another device at `/bus=`, `/class=` or `/driver=`. Without `=` in a
/// value, a `/` there is part of a path.
///
/// Every argument has a value: drivers read a missing one through a null pointer.
///
/// Virtual devices must have drivers that are known to keep to their own memory and their own
/// ports: drivers that bond, wrap or attach to the rings of other ports would let one port free
/// memory that another uses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct DeviceString {
    /// The parts, joined again.
    text: String,
    /// The part before the first comma.
    name: String,
    /// The arguments after the name, in order.
    arguments: Vec<Argument>,
    bus: Bus,
}

/// `key=value`, both not empty.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Argument {
    key: String,
    value: String,
}

/// The bus of a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Bus {
    Pci,
    Virtual(&'static Driver),
}

impl DeviceString {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |problem: String, remedy: &str| Error::DeviceString {
            device: text.into(),
            problem,
            remedy: remedy.into(),
        };
        let (name, arguments) = text.split_once(',').unwrap_or((text, ""));
        if text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(wrong("it holds a space or a control character".into(), "remove it"));
        }
        if name.len() >= sys::SH_DEVICE_NAME_MAX as usize {
            return Err(wrong(
                format!("its name has {} characters", name.len()),
                "use fewer than 64",
            ));
        }
        let bus = if is_pci_address(name) {
            Bus::Pci
        } else {
            let driver = driver::of_virtual(name).ok_or_else(|| {
                wrong(
                    "it names neither a PCI address nor a virtual device that is supported".into(),
                    &format!(
                        "use an address like 0000:01:00.0, or a name that starts with one of {}",
                        driver::virtual_names()
                    ),
                )
            })?;
            Bus::Virtual(driver)
        };
        let given = arguments.split(',').filter(|argument| !argument.is_empty());
        let mut arguments = Vec::new();
        for argument in given {
            arguments.push(Argument::parse(argument).map_err(|problem| {
                let problem = format!("its argument \"{argument}\" {problem}");
                wrong(problem, "write it as name=value, and choose paths without = [ ]")
            })?);
        }
        let joined = arguments.iter().map(|argument| format!(",{argument}"));
        let text = joined.fold(name.to_owned(), |text, argument| text + &argument);
        let device = Self { text, name: name.into(), arguments, bus };
        if let Bus::Virtual(driver) = bus {
            device.refuse_arguments(driver)?;
            values::check(driver.name, &device)
                .map_err(|(problem, remedy)| wrong(problem, &remedy))?;
        }
        device.check_length(sys::SH_DEVICE_STRING_BYTES_MAX as usize)?;
        Ok(device)
    }

    /// Refuses a device with a process at its other end that must be trusted.
    pub(crate) fn refuse_peer(&self) -> Result<(), Error> {
        match self.bus {
            Bus::Virtual(driver) if driver.trusts_peer => Err(Error::DeviceString {
                device: self.text.clone(),
                problem: "a peer that disconnects, or writes anything but packets to the memory \
                          that it shares, can crash this process"
                    .into(),
                remedy: "where the peer is trusted not to, say so: programs take \
                         --trust-memif-peer, and call Port::open_trusting_peer"
                    .into(),
            }),
            Bus::Virtual(_) | Bus::Pci => Ok(()),
        }
    }

    /// Refuses strings that are too long for the DPDK that this was built with.
    fn check_length(&self, dpdk_bytes_max: usize) -> Result<(), Error> {
        // DPDK counts the bus, a colon and a comma too: `vdev:net_null0,size=64`.
        let [bus, name, arguments] = self.for_hotplug().map(|part| part.count_bytes());
        let (bytes, max) = (name + 1 + arguments, dpdk_bytes_max - bus - 1);
        if bytes <= max {
            return Ok(());
        }
        Err(Error::DeviceString {
            device: self.text.clone(),
            problem: format!("it has {bytes} characters, and this DPDK takes at most {max}"),
            remedy: "give its files shorter paths, or fewer of them to one device".into(),
        })
    }

    /// Refuses arguments that would let a driver reach memory that is not its own.
    fn refuse_arguments(&self, driver: &Driver) -> Result<(), Error> {
        for argument @ Argument { key, value } in &self.arguments {
            let refused = driver
                .refused
                .iter()
                .find(|(name, harmless, _)| name == key && *harmless != Some(value.as_str()));
            if let Some((_, _, why)) = refused {
                return Err(Error::DeviceString {
                    device: self.text.clone(),
                    problem: format!("its argument \"{argument}\" is not allowed: {why}"),
                    remedy: "leave it out".into(),
                });
            }
        }
        Ok(())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) const fn has_arguments(&self) -> bool {
        !self.arguments.is_empty()
    }

    /// The value of an argument, the last one if it is repeated.
    pub(crate) fn argument(&self, key: &str) -> Option<&str> {
        self.arguments().filter(|(given, _)| *given == key).last().map(|(_, value)| value)
    }

    /// Every argument and its value, in order.
    fn arguments(&self) -> impl Iterator<Item = (&str, &str)> {
        self.arguments.iter().map(|argument| (argument.key.as_str(), argument.value.as_str()))
    }

    /// Whether the device needs no physically contiguous memory.
    pub(crate) const fn is_virtual(&self) -> bool {
        matches!(self.bus, Bus::Virtual(_))
    }

    /// Whether the device reads a capture file, which ends.
    pub(crate) fn reads_file(&self) -> bool {
        self.argument("rx_pcap").is_some() && self.argument("infinite_rx") != Some("1")
    }

    /// Bus, name and arguments for DPDK's hot-plug.
    pub(crate) fn for_hotplug(&self) -> [CString; 3] {
        let bus = if self.is_virtual() { "vdev" } else { "pci" };
        let arguments = self.text.split_once(',').map_or("", |(_, arguments)| arguments);
        // A device string contains no zero byte.
        [bus, &self.name, arguments].map(|part| CString::new(part).unwrap_or_default())
    }
}

impl Argument {
    /// Parses an argument in which DPDK finds the same key and the same value. Returns the problem
    /// otherwise.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if key.is_empty() || !key.bytes().all(word) {
            return Err("has no name of letters, digits, - and _");
        }
        if value.is_empty() {
            return Err("has no value");
        }
        if value.contains(['=', '[', ']']) {
            return Err("has one of = [ ] in its value");
        }
        Ok(Self { key: key.into(), value: value.into() })
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

/// `dddd:bb:dd.f`, or without the domain.
fn is_pci_address(name: &str) -> bool {
    let hex = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let Some((rest, function)) = name.rsplit_once('.') else { return false };
    let parts = rest.split(':').collect::<Vec<_>>();
    let address = match parts[..] {
        [domain, bus, device] => hex(domain, 4) && hex(bus, 2) && hex(device, 2),
        [bus, device] => hex(bus, 2) && hex(device, 2),
        _ => false,
    };
    address && hex(function, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_string_has_name_and_arguments() {
        let device = DeviceString::parse("net_pcap0,rx_pcap=a,rx_pcap=b,tx_pcap=c").unwrap();
        assert_eq!((device.name(), device.is_virtual()), ("net_pcap0", true));
        assert_eq!(device.argument("rx_pcap"), Some("b"));
        assert!(device.reads_file() && device.has_arguments());
        let endless = DeviceString::parse("net_pcap0,rx_pcap=a,infinite_rx=1").unwrap();
        assert!(!endless.reads_file());
        for address in ["0000:01:00.0", "01:00.1"] {
            assert!(!DeviceString::parse(address).unwrap().is_virtual());
        }
    }

    #[test]
    fn strings_that_name_no_device_are_refused_with_the_reason() {
        for (text, expected) in [
            ("", "neither"),
            ("eth0", "neither"),
            ("net_bonding0,slave=0", "neither"),
            ("0000:01:00", "neither"),
            ("net_null0, size=64", "space"),
            ("net_null0\0", "control"),
            ("net_ring0,nodeaction=R0:0:ATTACH", "not allowed"),
            ("net_ring0,internal=0x1234", "not allowed"),
            ("net_null0,copy=1", "not allowed"),
            ("net_af_xdp0,iface=lo,use_cni=1", "not allowed"),
            ("net_null0,copy", "\"copy\" has no value"),
            ("net_pcap0,iface", "\"iface\" has no value; write it as name=value"),
            ("net_af_packet0,iface=lo,qpairs=", "\"qpairs=\" has no value"),
            ("0000:01:00.0,key", "\"key\" has no value"),
            ("net_null0,no-rx=size=60000", "\"no-rx=size=60000\""),
            ("net_null0,no-rx=copy=1", "in its value"),
            ("net_af_xdp0,iface=veth0,xdp_prog=shared_umem=1", "without = [ ]"),
            ("net_null0,size=60000,no-rx=[x,size=64,y]", "without = [ ]"),
            ("net_null0,size=60/bus=vdev,name=net_null7,driver=x", "without = [ ]"),
            ("net_null0,x/bus=vdev", "has no name"),
            ("net_null0,=1", "has no name"),
            ("0000:01:00.0,a=1/class=eth", "without = [ ]"),
        ] {
            let message = DeviceString::parse(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
        let long = format!("net_null{}", "0".repeat(60));
        assert!(DeviceString::parse(&long).unwrap_err().to_string().contains("68 characters"));
        assert!(DeviceString::parse("net_null0,copy=0").is_ok());
    }

    #[test]
    fn dpdk_gets_what_was_parsed() {
        for (text, expected) in [
            ("net_null0", ["vdev", "net_null0", ""]),
            ("net_null0,,size=64,no-rx=1,", ["vdev", "net_null0", "size=64,no-rx=1"]),
            ("net_pcap0,rx_pcap=/tmp/a.b/c", ["vdev", "net_pcap0", "rx_pcap=/tmp/a.b/c"]),
            ("0000:01:00.0,key=1", ["pci", "0000:01:00.0", "key=1"]),
        ] {
            let device = DeviceString::parse(text).unwrap();
            let parts = device.for_hotplug().map(|part| part.into_string().unwrap());
            assert_eq!(parts, expected);
            assert_eq!(DeviceString::parse(device.text()).unwrap(), device);
        }
    }

    #[test]
    fn what_is_too_long_for_dpdk_is_refused_with_the_limit() {
        let device = |len: usize| {
            let path = "p".repeat(len - "net_pcap0,rx_pcap=".len());
            DeviceString::parse(&format!("net_pcap0,rx_pcap={path}")).unwrap()
        };
        // "vdev:" and 118 characters make 123.
        assert_eq!(device(118).check_length(123), Ok(()));
        let message = device(119).check_length(123).unwrap_err().to_string();
        assert!(message.contains("119 characters") && message.contains("at most 118"), "{message}");
    }
}
