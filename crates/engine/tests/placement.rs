//! The placement of cores, for topologies in the kernel's files.

use hotloop_engine::{Placement, Topology};
use std::path::Path;

/// A machine's files below a root folder.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(self, path: &str, text: &str) -> Self {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    fn online(self, list: &str) -> Self {
        self.file("sys/devices/system/cpu/online", list)
    }

    fn mask(self, list: &str) -> Self {
        let status = format!(
            "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{list}\nMems_allowed_list:\t0"
        );
        self.file("proc/self/status", &status)
    }

    fn node(self, node: usize, list: &str) -> Self {
        self.file(&format!("sys/devices/system/node/node{node}/cpulist"), list)
    }

    fn siblings(self, list: &str) -> Self {
        let cpus: Vec<usize> = list.split(',').map(|cpu| cpu.parse().unwrap()).collect();
        cpus.into_iter().fold(self, |machine, cpu| {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            machine.file(&path, list)
        })
    }

    fn topology(&self) -> Topology {
        Topology::read(self.0.path())
    }

    /// The CPUs for this many cores, with the port on `node`.
    fn place(&self, core_count: usize, node: Option<u32>) -> (Vec<usize>, Vec<String>) {
        let placement = Placement::automatic(&self.topology(), core_count, node);
        let cpus = placement.seats().iter().map(|seat| seat.cpu.expect("there are CPUs"));
        (cpus.collect(), placement.notes().to_vec())
    }
}

/// Two sockets of four cores with two threads each: 0 to 3 and 8 to 11 on the first.
fn two_sockets() -> Machine {
    let machine = Machine::new().online("0-15").mask("0-15");
    let machine = machine.file("sys/devices/system/node/online", "0-1");
    let machine = machine.node(0, "0-3,8-11").node(1, "4-7,12-15");
    (0..8).fold(machine, |machine, cpu| machine.siblings(&format!("{cpu},{}", cpu + 8)))
}

#[test]
fn two_sockets_are_read() {
    let topology = two_sockets().topology();
    assert_eq!(topology.cpus.len(), 16);
    let of = |id: usize| topology.cpus.iter().find(|cpu| cpu.id == id).unwrap();
    assert_eq!((of(3).node, of(3).sibling_index), (Some(0), 0));
    assert_eq!((of(11).node, of(11).sibling_index), (Some(0), 1));
    assert_eq!((of(12).node, of(12).sibling_index), (Some(1), 1));
}

#[test]
fn the_port_s_socket_comes_first_then_physical_cores_and_the_first_cpu_is_left() {
    let machine = two_sockets();
    assert_eq!(machine.place(4, Some(1)), (vec![4, 5, 6, 7], vec![]));
    assert_eq!(machine.place(6, Some(1)), (vec![4, 5, 6, 7, 12, 13], vec![]));
    assert_eq!(machine.place(3, Some(0)), (vec![1, 2, 3], vec![]), "0 is left to control");
    let remote = vec!["cores on another NUMA node than the port: 1".to_owned()];
    assert_eq!(machine.place(9, Some(1)), (vec![4, 5, 6, 7, 12, 13, 14, 15, 1], remote));
    let anywhere = machine.place(8, None);
    assert_eq!(anywhere, (vec![1, 2, 3, 4, 5, 6, 7, 8], vec![]), "7 physical cores, then siblings");
}

#[test]
fn seats_tell_their_node() {
    let placement = Placement::automatic(&two_sockets().topology(), 9, Some(1));
    let nodes: Vec<_> = placement.seats().iter().map(|seat| seat.node).collect();
    assert_eq!(nodes[..8], [Some(1); 8]);
    assert_eq!(nodes[8], Some(0));
    assert!(placement.seats().iter().all(|seat| !seat.is_shared));
}

#[test]
fn all_cpus_are_used_where_as_many_cores_are_asked_for() {
    let (cpus, notes) = two_sockets().place(16, None);
    assert_eq!(cpus, (0..16).collect::<Vec<_>>());
    assert_eq!(notes, ["no CPU is left to control (cores: 16, CPUs: 16)"]);
}

#[test]
fn offline_cpus_and_those_outside_the_mask_are_not_used() {
    let offline = Machine::new().online("0,2-3,6").mask("0-7");
    assert_eq!(offline.place(3, None).0, [2, 3, 6]);
    let masked = Machine::new().online("0-7").mask("1,3,5,7");
    assert_eq!(masked.place(3, None).0, [3, 5, 7], "the first that may be used is left");
    let both = Machine::new().online("0-3").mask("2-9");
    assert_eq!(both.place(1, None).0, [3]);
}

#[test]
fn a_thread_whose_sibling_may_not_be_used_counts_as_a_core() {
    let machine = Machine::new().online("0-7").mask("0-2,4,6");
    let machine = (0..4).fold(machine, |all, cpu| all.siblings(&format!("{cpu},{}", cpu + 4)));
    // 3 has no sibling; 4 is the sibling of 0 and 6 of 2, so both come last.
    assert_eq!(machine.place(4, None).0, [1, 2, 4, 6]);
    let machine = machine.mask("0-1,4,7");
    assert_eq!(machine.place(3, None).0, [1, 7, 4], "7 has its core for itself, 4 shares 0's");
}

#[test]
fn one_cpu_is_shared_and_said_so() {
    let machine = Machine::new().online("0").mask("0");
    let placement = Placement::automatic(&machine.topology(), 3, None);
    assert!(placement.seats().iter().all(|seat| seat.cpu == Some(0) && seat.is_shared));
    let share =
        "3 cores share 1 CPUs and yield to each other when idle: expect a fraction of the speed";
    assert_eq!(placement.notes(), ["no CPU is left to control (cores: 3, CPUs: 1)", share]);
    let alone = Placement::automatic(&machine.topology(), 1, None);
    assert!(!alone.seats()[0].is_shared);
    assert_eq!(alone.notes(), ["no CPU is left to control (cores: 1, CPUs: 1)"]);
    assert_eq!(alone.to_string(), "CPUs 0; no CPU is left to control (cores: 1, CPUs: 1)");
}

#[test]
fn two_cpus_are_both_used_but_for_a_single_core() {
    let machine = Machine::new().online("0-1").mask("0-1");
    assert_eq!(machine.place(1, None), (vec![1], vec![]));
    let none_left = vec!["no CPU is left to control (cores: 2, CPUs: 2)".to_owned()];
    assert_eq!(machine.place(2, None), (vec![0, 1], none_left));
}

#[test]
fn more_cores_than_cpus_go_round() {
    let machine = Machine::new().online("0-1").mask("0-1");
    let placement = Placement::automatic(&machine.topology(), 3, None);
    let seats: Vec<_> = placement.seats().iter().map(|seat| (seat.cpu, seat.is_shared)).collect();
    assert_eq!(seats, [(Some(0), true), (Some(1), false), (Some(0), true)]);
    assert!(placement.notes()[1].starts_with("3 cores share 2 CPUs"));
}

#[test]
fn without_files_there_is_one_cpu() {
    let topology = Topology::read(Path::new("/nowhere/at/all"));
    let only: Vec<_> =
        topology.cpus.iter().map(|cpu| (cpu.id, cpu.node, cpu.sibling_index)).collect();
    assert_eq!(only, [(0, None, 0)]);
}

#[test]
fn without_the_kernel_s_list_the_mask_says_which_cpus_there_are() {
    let machine = Machine::new().mask("4-5,7");
    assert_eq!(machine.place(3, None).0, [4, 5, 7]);
}

#[test]
fn without_a_mask_every_cpu_online_may_be_used() {
    assert_eq!(Machine::new().online("0-2").place(2, None), (vec![1, 2], vec![]));
}

#[test]
fn a_mask_without_any_cpu_online_leaves_cores_to_the_kernel() {
    let machine = Machine::new().online("0-1").mask("8");
    let placement = Placement::automatic(&machine.topology(), 2, None);
    assert!(placement.seats().iter().all(|seat| seat.cpu.is_none() && seat.is_shared));
}

#[test]
fn cpus_can_be_named() {
    let topology = two_sockets().topology();
    let placement = Placement::explicit(&topology, &[12, 4, 4]).unwrap();
    let seats: Vec<_> =
        placement.seats().iter().map(|seat| (seat.cpu, seat.node, seat.is_shared)).collect();
    let four = (Some(4), Some(1), true);
    assert_eq!(seats, [(Some(12), Some(1), false), four, four]);
    assert!(placement.notes().is_empty());
}

#[test]
fn a_cpu_that_cannot_be_used_is_refused_by_name() {
    let topology = Machine::new().online("0-3").mask("1-2").topology();
    let error = Placement::explicit(&topology, &[1, 3]).unwrap_err();
    assert_eq!((error.asked, error.usable.as_slice()), (3, [1, 2].as_slice()));
    let text = "CPU 3 is offline or outside this process's mask; it may use [1, 2]";
    assert_eq!(error.to_string(), text);
}
