//! Revocations: they end epochs, and give operations in flight to the state.

use crate::engine::Engine;
use crate::engine::in_flight::{InFlight, Operation};
use baton_abi::control::ProcessId;
use baton_abi::lane::ChainEntry;
use baton_state::State;

impl Engine {
    /// Ends every epoch, and gives all operations in flight to the state. Called before the state
    /// looks at other threads' calls, or changes anything that validated calls rely on.
    pub fn revoke(&self, state: &mut State) {
        self.operations.revocation.revoke();
        self.take_over_if(state, |_| true);
        state.take_over_slots_of(None);
    }

    /// Like [`Engine::revoke`], for the channels and operations with one peer.
    pub(crate) fn revoke_with(&self, state: &mut State, peer: ProcessId) {
        self.pool.channels.revoke_entries_with(peer);
        self.take_over_if(state, |in_flight| in_flight.is_with(peer));
        state.take_over_slots_of(Some(peer));
    }

    /// Registers with the state every fast call of this process that appears in `chain`. These
    /// callers wait for their answers, so no further one begins meanwhile.
    pub(crate) fn revoke_callers(&self, state: &mut State, chain: &[ChainEntry]) {
        let ours = || chain.iter().filter(|entry| entry.process == self.identity.process.0);
        if ours().next().is_some() {
            self.take_over_if(state, |in_flight| {
                in_flight.has_given(ours().map(|entry| entry.token))
            });
        }
    }

    fn take_over_if(&self, state: &mut State, concerned: impl Fn(&InFlight) -> bool) {
        self.operations.for_each_if(concerned, |in_flight| self.take_over(state, in_flight));
    }

    /// Gives the calling thread's operation in flight to the state.
    pub(crate) fn take_over_own(&self, state: &mut State) {
        if let Some(in_flight) = self.own_in_flight() {
            self.take_over(state, &in_flight);
        }
    }

    /// Gives the state the operation of the calling thread, and ends it on the fast path.
    pub(super) fn give_up(&self, in_flight: &InFlight) {
        self.with_state(|state| {
            self.take_over(state, in_flight);
            in_flight.leave();
        });
    }

    pub(super) fn take_over(&self, state: &mut State, in_flight: &InFlight) {
        match in_flight.take_over() {
            Some(Operation::Calling(calling)) => state.adopt_call(in_flight.tid, calling),
            Some(Operation::Serving(serving)) => state.adopt_service(in_flight.tid, serving),
            None => return,
        }
        // The state counts the operation before the thread stops counting it.
        self.publish(state);
        self.page.set_open(&in_flight.slot, false);
    }
}
