//! The arguments for the roles of cores.

use clap::Args;
use hotloop_engine::Deployment;

/// Arguments of a program whose graph has two groups of cores. Flattened into its own arguments.
#[derive(Args, Clone, Copy, Debug)]
pub struct DeploymentArgs {
    /// Run to completion on N cores. Each core has its own queues, and does all the work on their packets.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "pipeline")]
    run_to_completion: usize,
    /// Instead, D cores receive and dispatch to W cores, which do the rest.
    #[arg(long, value_name = "D,W", value_parser = counts)]
    pipeline: Option<[usize; 2]>,
}

impl DeploymentArgs {
    /// The roles of the cores.
    #[must_use]
    pub const fn deployment(self) -> Deployment {
        match self.pipeline {
            Some(counts) => Deployment::pipeline(counts),
            None => Deployment::run_to_completion(self.run_to_completion),
        }
    }
}

fn counts(text: &str) -> Result<[usize; 2], String> {
    let counts = text.split_once(',').map(|(d, w)| [d.parse().ok(), w.parse().ok()]);
    match counts {
        Some([Some(dispatchers), Some(workers)]) => Ok([dispatchers, workers]),
        _ => Err("write two numbers of cores, such as 1,2".to_owned()),
    }
}
