//! Where the idempotency records stand.

use crate::server::{Config, StartError};
use idem_runtime::store::{SqliteStore, Store};
use std::sync::Arc;

type Connected = Result<Arc<dyn Store>, StartError>;

/// A store, and whether it can commit together with the orders.
pub(crate) struct Records {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) with_orders: bool,
}

/// Connects to where the configuration says; by default that is the file of the orders.
pub(crate) async fn connect(config: &Config) -> Result<Records, StartError> {
    match &config.store {
        None => Ok(Records {
            store: beside_the_orders(config).await?,
            with_orders: true,
        }),
        Some(url) => Ok(Records {
            store: elsewhere(url).await?,
            with_orders: false,
        }),
    }
}

async fn beside_the_orders(config: &Config) -> Connected {
    let file = &config.database;
    let store = SqliteStore::connect(&file.to_string_lossy()).await;
    Ok(Arc::new(store.map_err(|source| StartError::Records {
        file: file.clone(),
        source,
    })?))
}

async fn elsewhere(url: &str) -> Connected {
    match url.split_once("://").map_or("", |(scheme, _)| scheme) {
        "postgres" | "postgresql" => postgres(url).await,
        "mysql" | "mariadb" => mysql(url).await,
        "redis" | "redis-cluster" => redis(url).await,
        _ => Err(StartError::UnknownStore),
    }
}

/// A function that connects to a store, if the program is built with its feature.
macro_rules! store {
    ($name:ident, $feature:literal, $store:ident) => {
        #[cfg(feature = $feature)]
        async fn $name(url: &str) -> Connected {
            match idem_runtime::store::$store::connect(url).await {
                Ok(store) => Ok(Arc::new(store)),
                // Not the URL, which may hold a password.
                Err(source) => Err(StartError::Store {
                    name: $feature,
                    source,
                }),
            }
        }

        #[cfg(not(feature = $feature))]
        async fn $name(_: &str) -> Connected {
            Err(StartError::StoreNotBuilt($feature))
        }
    };
}

store!(postgres, "postgres", PostgresStore);
store!(mysql, "mysql", MySqlStore);
store!(redis, "redis", RedisStore);
