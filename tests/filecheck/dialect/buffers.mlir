// RUN: %roundtrip
// Buffers: groups go in as they come and leave in batches, up to `age` steps older.

rpeg.pipeline @p {
  rpeg.model @actor policy("x")
  rpeg.data @train prompts("y")
  rpeg.verifier @good outcome("rule:exact_match")
  // CHECK: rpeg.step i < 3 ({{.*}}%queue: !rpeg.buffer<@queue, capacity = 8, age = 2, fifo, [!rpeg.traj<@actor, 1, n = 2>, !rpeg.tok<logprob, @actor sampled>, !rpeg.seq<reward>]>) {
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>, %train : !rpeg.cursor<@train, prompts>, %queue : !rpeg.buffer<@queue, capacity = 8, age = 2, fifo, [!rpeg.traj<@actor, 1, n = 2>, !rpeg.tok<logprob, @actor sampled>, !rpeg.seq<reward>]>) {
    %good = rpeg.get @good : !rpeg.verifier<@good, outcome>
    %q, %train_1 = rpeg.batch %train {size = 4}
    %y, %lp = rpeg.generate %actor, %q {n = 2, max_tokens = 8}
    %r = rpeg.score %good, %y
    // CHECK: %queue_1 = rpeg.push %queue, %y, %lp, %r
    %queue_1 = rpeg.push %queue, %y, %lp, %r
    // CHECK: %y2, %lp2, %r2, %queue_2 = rpeg.pop %queue_1 {groups = 2 : i64}
    %y2, %lp2, %r2, %queue_2 = rpeg.pop %queue_1 {groups = 2}
    // Reads what left the buffer, with the lag that its type now has.
    %a = rpeg.group_advantage %r2 {baseline = "mean", scale = "std"}
    %now = rpeg.logprob %actor, %y2
    %w = rpeg.importance %now, %lp2
    %pg = "rpeg.loss.ppo_clip"(%y2, %a, %now, %w) <{clip_low = 0.2 : f64, clip_high = 0.2 : f64, ratio = "token"}> : (!rpeg.traj<@actor, 2, n = 2, lag = [0, 2]>, !rpeg.seq<advantage, group>, !rpeg.tok<logprob, @actor>, !rpeg.tok<weight, @actor, group>) -> !rpeg.loss<@actor, group>
    rpeg.yield %actor, %train_1, %queue_2
  }
}
