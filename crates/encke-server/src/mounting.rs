//! Mounting: a worker opens the handlers and guards of a plan, at its start and at each reload.
//!
//! Handlers and guards of the previous plan are marked as retired. The worker drops them once no exchange and no job needs
//! them.

use std::rc::Rc;

use crate::core::{Core, Mounted};
use crate::handler::{HandlerContext, JobId};
use crate::held::Chain;
use crate::operate::{Offers, Operators};
use crate::plan::WorkerPlan;
use crate::resident::WorkerSetup;

impl Core {
    /// Opens the handlers and guards of a plan. The previous plan's receive no new requests.
    pub(crate) fn mount(&mut self, plan: &WorkerPlan) {
        for mounted in self.handlers.iter_mut().flatten() {
            mounted.retired = true;
            self.retired = true;
        }
        self.operators = Operators::default();
        let mut numbers = Vec::with_capacity(plan.mounts.len());
        for mount in &plan.mounts {
            let number = self.free_handler();
            let context = HandlerContext::new(number, Rc::clone(&self.handler_requests));
            let mut setup = self.setup();
            let handler = mount.mount.open(context, &mut setup);
            let WorkerSetup { seat, offers, .. } = setup;
            self.operators.add(number, offers);
            if !mount.admin {
                self.operators.add_point(number, &mount.prefix, mount.mount.source());
            }
            let mounted = Mounted { handler, seat, retired: false, jobs: 0, watches: Vec::new() };
            self.handlers[usize::from(number)] = Some(mounted);
            numbers.push(number);
        }
        self.routes = [false, true].map(|admin| {
            // The last mount first: the sort is stable.
            let mounts = plan.mounts.iter().zip(&numbers).rev().filter(|(mount, _)| mount.admin == admin);
            let mut routes: Vec<(Box<[u8]>, u16)> =
                mounts.map(|(mount, handler)| (mount.prefix.as_bytes().into(), *handler)).collect();
            routes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
            routes
        });
        self.open_guards(plan, &numbers);
    }

    /// Returns an unused handler number. Its entry in `handlers` exists and is `None`.
    fn free_handler(&mut self) -> u16 {
        let free = self.handlers.iter().position(Option::is_none).unwrap_or_else(|| {
            self.handlers.push(None);
            self.handlers.len() - 1
        });
        // Only open exchanges and jobs keep handlers of earlier plans.
        assert!(free < JobId::HANDLERS_MAX, "too many handlers of earlier plans");
        free as u16
    }

    /// Opens the guards of a plan. `handlers` has the handler number of each of its mounts.
    fn open_guards(&mut self, plan: &WorkerPlan, handlers: &[u16]) {
        self.retired |= self.guards.retire();
        let mut numbers = Vec::new();
        for point in &plan.guards {
            let number = self.guards.free();
            let context = HandlerContext::new(JobId::context_of(number), Rc::clone(&self.handler_requests));
            let mut setup = self.setup();
            let guard = point.guard.open(context, &mut setup);
            let WorkerSetup { offers, .. } = setup;
            self.operators.add(JobId::context_of(number), offers);
            self.guards.put(number, guard);
            numbers.push((point.at.as_deref(), number));
        }
        let chain = |prefix: Option<&str>| -> Chain {
            let at = |wanted: Option<&str>| {
                let matches = move |(at, _): &&(Option<&str>, u16)| *at == wanted;
                numbers.iter().filter(matches).map(|(_, number)| *number).collect::<Vec<u16>>()
            };
            let own = prefix.map(|prefix| at(Some(prefix))).unwrap_or_default();
            [at(None), own].concat().into()
        };
        let mounts = plan.mounts.iter().zip(handlers).filter(|(mount, _)| !mount.admin);
        let chains = mounts.map(|(mount, handler)| (*handler, chain(Some(&mount.prefix))));
        self.guards.set_chains(chain(None), chains);
    }

    /// A mount's or guard's access to this worker while it opens.
    fn setup(&mut self) -> WorkerSetup<'_> {
        WorkerSetup {
            residents: &mut self.residents,
            now: self.now,
            number: self.number,
            workers: self.workers,
            seat: None,
            offers: Offers::default(),
        }
    }
}
