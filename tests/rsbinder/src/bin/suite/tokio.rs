//! A service and a client that are asynchronous, on tokio.

use baton_rsbinder_programs::suite::IListener::IListener;
use baton_rsbinder_programs::suite::ITasks::{BnTasks, ITasks, ITasksAsync, ITasksAsyncService};
use rsbinder::{BinderResult, Interface, StatusCode, Strong, Tokio, TokioRuntime, hub};
use tokio::sync::watch;

use crate::check::{Outcome, equal, step};
use crate::child::{self, Child, Loopers};
use crate::listener::listen;

struct Tasks {
    waiting: watch::Sender<i32>,
}

impl Interface for Tasks {}

#[rsbinder::__async_trait]
impl ITasksAsyncService for Tasks {
    async fn greet(&self, name: &str) -> BinderResult<String> {
        tokio::task::yield_now().await;
        Ok(format!("hello, {name}"))
    }

    async fn meet(&self, count: i32) -> BinderResult<i32> {
        self.waiting.send_modify(|waiting| *waiting += 1);
        let mut waiting = self.waiting.subscribe();
        let waiting = waiting.wait_for(|waiting| *waiting >= count).await;
        Ok(*waiting.map_err(|_| StatusCode::Unknown)?)
    }

    async fn callBack(&self, listener: &Strong<dyn IListener>, value: i32) -> BinderResult<i32> {
        listener.clone().into_async::<Tokio>().call(value).await
    }
}

fn runtime() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?)
}

/// Role `tokio NAME`.
pub fn serve(arguments: &[String]) -> Outcome {
    child::open(Loopers::Pool)?;
    let runtime = runtime()?;
    let tasks = Tasks { waiting: watch::Sender::new(0) };
    let tasks = BnTasks::new_async_binder(tasks, TokioRuntime(runtime.handle().clone()));
    child::serve(&arguments[0], tasks.as_binder())
}

async fn calls(tasks: Strong<dyn ITasksAsync<Tokio>>) -> Outcome {
    step("a call");
    equal("greeting", tasks.greet("baton").await?.as_str(), "hello, baton")?;

    step("eight calls at once");
    let callers: Vec<_> = (0..8)
        .map(|_| tasks.clone())
        .map(|tasks| tokio::spawn(async move { tasks.meet(8).await }))
        .collect();
    for caller in callers {
        equal("callers in the service", caller.await??, 8)?;
    }

    step("a call back");
    let (listener, _heard) = listen();
    equal("answer", tasks.callBack(&listener, 41).await?, 42)
}

pub fn scenario() -> Outcome {
    child::open(Loopers::Pool)?;
    let mut child = Child::start("tokio", &["suite.tokio.service"])?;
    let runtime = runtime()?;
    let tasks: Strong<dyn ITasks> = hub::check_interface("suite.tokio.service")?;
    runtime.block_on(calls(tasks.clone().into_async()))?;

    step("the death of the service, awaited");
    let death = rsbinder::death_signal(&tasks.as_binder())?;
    child.kill()?;
    runtime.block_on(death);
    let tasks: Strong<dyn ITasksAsync<Tokio>> = tasks.into_async();
    let answer = runtime.block_on(async { tasks.greet("nobody").await });
    equal("a call to the dead", answer.map_err(StatusCode::from), Err(StatusCode::DeadObject))
}
