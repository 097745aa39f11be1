//! Pools of the object store that policies name (E-03).
//!
//! People name pools, and the names of objects have numbers. A client that passes a policy on asks
//! the store first, so that an unknown pool is an error where the policy is set, not where a file
//! is written.

use policy::Policy;
use types::Result;

use crate::Cluster;

impl Cluster {
    /// The policy with the number that the store has given to its pool.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the store has no pools, `ENOENT` if it has none of this name.
    pub(crate) fn numbered(&self, policy: &Policy) -> Result<Policy> {
        let Some(name) = &policy.data_pool else { return Ok(policy.clone()) };
        let number = crate::stores::open(&self.status()?.store)?.pool(name)?;
        Ok(Policy { stripe: policy.stripe.in_pool(number), ..policy.clone() })
    }

    /// The text of a policy with the number; any other text as it is.
    pub(crate) fn numbered_text(&self, text: &str) -> Result<String> {
        match Policy::parse(text) {
            Ok(parsed) if parsed.policy.data_pool.is_some() => {
                Ok(self.numbered(&parsed.policy)?.to_yaml())
            }
            // The server reports other faults of the text.
            Ok(_) | Err(_) => Ok(text.to_owned()),
        }
    }
}
