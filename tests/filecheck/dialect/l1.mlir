// RUN: %roundtrip
// What passes add to L0: process groups, notes on stages, explicit movement.

// CHECK: rpeg.ranks @all 0 to 7
rpeg.pipeline @p {
  rpeg.model @actor policy("x")
  rpeg.data @train prompts("y")
  rpeg.ranks @all 0 to 7
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>, %train : !rpeg.cursor<@train, prompts>) {
    %q, %train_1 = rpeg.batch %train {size = 8}
    // CHECK: %[[engine:.*]] = rpeg.publish %actor attributes {task = "publish"}
    %engine = rpeg.publish %actor attributes {task = "publish"}
    // CHECK-NEXT: %y, %lp = rpeg.generate %[[engine]], %q {max_tokens = 8 : i64} attributes {stage = "y", pool = "all", par = #rpeg.record<par, {dp = 8 : i64}>}
    %y, %lp = rpeg.generate %engine, %q {max_tokens = 8} attributes {stage = "y", pool = "all", par = #rpeg.record<par, {dp = 8 : i64}>}
    // CHECK-NEXT: rpeg.on_policy_logprob %y
    %old = rpeg.on_policy_logprob %y
    // CHECK:      %a, %b = rpeg.fuse {} {
    // CHECK-NEXT:   %{{.*}} = rpeg.logprob %actor, %y attributes {stage = "a", pool = "all"}
    // CHECK-NEXT:   %{{.*}} = rpeg.logprob %actor, %y attributes {stage = "b", pool = "all"}
    // CHECK-NEXT: }
    %a, %b = rpeg.fuse {} {
      %inner_a = rpeg.logprob %actor, %y attributes {stage = "a", pool = "all"}
      %inner_b = rpeg.logprob %actor, %y attributes {stage = "b", pool = "all"}
    }
    rpeg.yield %actor, %train_1
  }
}
