//! The services of a prefix's ports: compact tables, immutable after the rules are made. Every port
//! has exactly one entry.

use crate::spec::Ports;
use std::collections::BTreeSet;

/// The index of a service in the configuration, or [`NONE`](Self::NONE).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ServiceIndex(u32);

impl ServiceIndex {
    /// No service.
    pub const NONE: Self = Self(PortTable::PAYLOAD);

    /// The service at `index`, which is at most [`SERVICES_MAX`](crate::spec::SERVICES_MAX).
    pub const fn new(index: usize) -> Self {
        Self(index as u32)
    }

    #[inline]
    pub const fn index(self) -> Option<usize> {
        if self.0 == Self::NONE.0 { None } else { Some(self.0 as usize) }
    }
}

/// The services of all ports of one prefix, for one protocol: the kind of table in the two high
/// bits, and its position in the others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PortTable(u32);

impl PortTable {
    /// No service for any port.
    pub const NONE: Self = Self::same(ServiceIndex::NONE);

    const PAYLOAD: u32 = (1 << 30) - 1;
    const KIND: u32 = !Self::PAYLOAD;
    /// All ports have the same service: the one whose index is the payload.
    const SAME: u32 = 0;
    /// The payload is the index of the first of a list of pieces.
    const PIECES: u32 = 1 << 30;
    /// The payload is the number of a directory of pages.
    const PAGES: u32 = 2 << 30;
    /// The payload is the number of a range: only one service has ports.
    const RANGE: u32 = 3 << 30;

    const fn same(service: ServiceIndex) -> Self {
        Self(Self::SAME | service.0)
    }

    /// The service that all ports have; [`ServiceIndex::NONE`] if they have different ones.
    pub const fn whole(self) -> ServiceIndex {
        match self.0 & Self::KIND {
            Self::SAME => ServiceIndex(self.0),
            _ => ServiceIndex::NONE,
        }
    }
}

/// Maximum number of pieces before the ports get pages.
pub const PIECES_MAX: usize = 16;

/// Number of ports of a page, which share their high byte, and of pages of a directory.
const PAGE_PORTS: usize = 256;

/// A page, and a directory of pages.
type PortPage = [u32; PAGE_PORTS];

/// The ports from `start` up to the next piece's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Piece {
    start: u32,
    service: ServiceIndex,
}

/// The ports of a prefix's only service, as most prefixes have it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Range {
    first: u16,
    last: u16,
    service: ServiceIndex,
}

impl Range {
    /// The range of the only service in `pieces`, if there is only one, with one range.
    fn of(pieces: &[Piece]) -> Option<Self> {
        let mut its = (0..pieces.len()).filter(|&at| pieces[at].service != ServiceIndex::NONE);
        let (Some(at), None) = (its.next(), its.next()) else { return None };
        let end = pieces.get(at + 1).map_or(END, |next| next.start);
        let Piece { start, service } = pieces[at];
        Some(Self { first: start as u16, last: (end - 1) as u16, service })
    }
}

/// One past the last port: the end of a list of pieces.
const END: u32 = 1 << 16;

/// The port tables of all prefixes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PortTables {
    ranges: Vec<Range>,
    /// Lists of pieces, in sequence. Each begins with port 0 and ends with [`END`].
    pieces: Vec<Piece>,
    /// The services of all ports of a page, or a directory: each page's number, or the service that
    /// all of the page's ports have, as [`PortTable`]s.
    pages: Vec<PortPage>,
}

impl PortTables {
    /// The service of `port`.
    #[inline(always)]
    pub fn service(&self, table: PortTable, port: u16) -> ServiceIndex {
        // The two kinds that most prefixes have, by comparing: a match on all four would be a jump
        // table.
        let payload = table.0 & PortTable::PAYLOAD;
        if table.0 >= PortTable::RANGE {
            let Range { first, last, service } = self.ranges[payload as usize];
            if (first..=last).contains(&port) { service } else { ServiceIndex::NONE }
        } else if table.0 < PortTable::PIECES {
            ServiceIndex(payload)
        } else {
            self.divided(table, port)
        }
    }

    #[inline(never)]
    fn divided(&self, table: PortTable, port: u16) -> ServiceIndex {
        let payload = (table.0 & PortTable::PAYLOAD) as usize;
        let is_paged = table.0 & PortTable::KIND == PortTable::PAGES;
        if is_paged { self.paged(payload, port) } else { self.piece(payload, port) }
    }

    fn piece(&self, first: usize, port: u16) -> ServiceIndex {
        let mut pieces = self.pieces[first..].iter();
        let mut service = ServiceIndex::NONE;
        while let Some(piece) = pieces.next()
            && piece.start <= u32::from(port)
        {
            service = piece.service;
        }
        service
    }

    fn paged(&self, directory: usize, port: u16) -> ServiceIndex {
        let [high, low] = port.to_be_bytes().map(usize::from);
        let entry = self.pages[directory][high];
        let payload = entry & PortTable::PAYLOAD;
        if entry & PortTable::KIND == PortTable::SAME {
            return ServiceIndex(payload);
        }
        ServiceIndex(self.pages[payload as usize][low])
    }

    /// Adds a table of the services of `ranges`, the most specific first.
    pub fn add(&mut self, ranges: &[(Ports, ServiceIndex)]) -> PortTable {
        let pieces = pieces(ranges);
        if let [whole] = &pieces[..] {
            PortTable::same(whole.service)
        } else if let Some(range) = Range::of(&pieces) {
            self.ranges.push(range);
            PortTable(PortTable::RANGE | (self.ranges.len() - 1) as u32)
        } else if pieces.len() <= PIECES_MAX {
            let table = PortTable(PortTable::PIECES | self.pieces.len() as u32);
            self.pieces.extend(pieces);
            self.pieces.push(Piece { start: END, service: ServiceIndex::NONE });
            table
        } else {
            self.add_pages(&pieces)
        }
    }

    fn add_pages(&mut self, pieces: &[Piece]) -> PortTable {
        let mut services = vec![ServiceIndex::NONE.0; END as usize];
        let ends = pieces[1..].iter().map(|piece| piece.start).chain([END]);
        for (piece, end) in pieces.iter().zip(ends) {
            services[piece.start as usize..end as usize].fill(piece.service.0);
        }
        let directory = self.pages.len();
        self.pages.push([0; PAGE_PORTS]);
        let (pages, _) = services.as_chunks::<PAGE_PORTS>();
        for (high, page) in pages.iter().enumerate() {
            self.pages[directory][high] = if page.iter().all(|service| *service == page[0]) {
                PortTable::SAME | page[0]
            } else {
                self.pages.push(*page);
                PortTable::PAGES | (self.pages.len() - 1) as u32
            };
        }
        PortTable(PortTable::PAGES | directory as u32)
    }

    /// All services in tables with more than one service.
    pub fn services(&self) -> impl Iterator<Item = ServiceIndex> {
        let of_pages = self.pages.iter().flatten();
        let of_pages = of_pages.filter(|entry| **entry & PortTable::KIND == PortTable::SAME);
        let of_pages = of_pages.map(|entry| ServiceIndex(*entry));
        let of_ranges = self.ranges.iter().map(|range| range.service);
        of_ranges.chain(self.pieces.iter().map(|piece| piece.service)).chain(of_pages)
    }

    /// The tables' memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.ranges) + size_of_val(&*self.pieces) + size_of_val(&*self.pages)
    }
}

/// All ports, divided at each change of the most specific range, which is the first in `ranges`.
fn pieces(ranges: &[(Ports, ServiceIndex)]) -> Vec<Piece> {
    // The first port of each range and the first port after it, each with the range's index.
    let (mut begins, mut ends) = (Vec::new(), Vec::new());
    for (rank, (ports, _)) in ranges.iter().enumerate() {
        let (first, last) = match *ports {
            Ports::Any => (0, END - 1),
            Ports::Range { first, last } => (u32::from(first), u32::from(last)),
        };
        begins.push((first, rank));
        ends.push((last + 1, rank));
    }
    begins.sort_unstable();
    ends.sort_unstable();
    let mut starts: Vec<u32> = begins.iter().chain(&ends).map(|(port, _)| *port).collect();
    starts.push(0);
    starts.sort_unstable();
    starts.dedup();
    let (mut begins, mut ends) = (begins.into_iter().peekable(), ends.into_iter().peekable());
    let mut open = BTreeSet::new();
    let mut pieces: Vec<Piece> = Vec::new();
    for start in starts.into_iter().filter(|start| *start < END) {
        while let Some((_, rank)) = ends.next_if(|(port, _)| *port <= start) {
            open.remove(&rank);
        }
        while let Some((_, rank)) = begins.next_if(|(port, _)| *port <= start) {
            open.insert(rank);
        }
        let service = open.first().map_or(ServiceIndex::NONE, |rank| ranges[*rank].1);
        if pieces.last().is_none_or(|piece| piece.service != service) {
            pieces.push(Piece { start, service });
        }
    }
    pieces
}
