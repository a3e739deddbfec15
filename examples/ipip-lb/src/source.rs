//! The source of a configuration: a file, the store that it names, and arguments that override
//! both.

use crate::config::{CORES_MAX, Config, DeploymentKind};
use crate::failure::BadInput;
use clap::{Args, ValueEnum};
use hotloop_cluster::store::layout::Stored;
use hotloop_cluster::store::{self, Patience, copy};
use std::path::PathBuf;

/// Arguments that name a configuration and override parts of it.
#[derive(Args, Clone, Debug)]
pub struct ConfigSource {
    /// The configuration, a TOML file.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Overrides the configuration's engine.deployment.
    #[arg(long, value_enum)]
    pub deployment: Option<Deployment>,
    /// Overrides engine.dispatchers; ignored in run-to-completion.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(CORES_MAX)))]
    pub dispatchers: Option<u32>,
    /// Overrides engine.workers.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(CORES_MAX)))]
    pub workers: Option<u32>,
}

/// The choices of `--deployment`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Deployment {
    /// Each worker receives, balances and sends.
    RunToCompletion,
    /// Dispatchers receive, workers balance and send.
    Pipeline,
}

impl ConfigSource {
    /// A file without overrides.
    #[must_use]
    pub const fn file(path: PathBuf) -> Self {
        Self { config: path, deployment: None, dispatchers: None, workers: None }
    }

    /// The configuration in the file, with the arguments' overrides. If the file names a store, the
    /// part that all nodes share comes from there, or from the node's copy of it.
    ///
    /// # Errors
    /// If the configuration is invalid, or there is neither a store nor a copy.
    pub fn configuration(&self) -> Result<Config, BadInput> {
        self.start(Patience::None).map(|(config, _)| config)
    }

    /// Like [`configuration`](Self::configuration), with the store's part if the file names a
    /// store.
    ///
    /// # Errors
    /// If the configuration is invalid; without patience, also if there is none.
    pub fn start(&self, patience: Patience) -> Result<(Config, Option<Stored>), BadInput> {
        let (file, text) = self.text()?;
        let (config, stored) = match Config::store_of(&file, &text)? {
            None => (Config::parse(&file, &text)?, None),
            Some(store) => {
                let copy = copy::load(&store.copy, Config::text)?;
                let parse = |stored: &Stored| {
                    Config::parse_shared((&file, &text), (&stored.name, &stored.text))
                };
                let started = store::start(&store, copy, patience, parse);
                let (config, stored) = started.map_err(BadInput::new)?;
                (config, Some(stored))
            }
        };
        Ok((self.overridden(config), stored))
    }

    /// The configuration of the file together with a store's part.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn configuration_with(&self, stored: Option<&Stored>) -> Result<Config, BadInput> {
        let (file, text) = self.text()?;
        let config = match stored {
            None => Config::parse(&file, &text)?,
            Some(stored) => Config::parse_shared((&file, &text), (&stored.name, &stored.text))?,
        };
        Ok(self.overridden(config))
    }

    fn text(&self) -> Result<(String, String), BadInput> {
        Ok((self.config.display().to_string(), Config::text(&self.config)?))
    }

    fn overridden(&self, mut config: Config) -> Config {
        if let Some(deployment) = self.deployment {
            config.engine.deployment = match deployment {
                Deployment::RunToCompletion => DeploymentKind::RunToCompletion,
                Deployment::Pipeline => DeploymentKind::Pipeline,
            };
        }
        if let Some(dispatchers) = self.dispatchers {
            config.engine.dispatchers = dispatchers as usize;
        }
        if let Some(workers) = self.workers {
            config.engine.workers = workers as usize;
        }
        config
    }
}
