"""Task graphs of ten pipelines, written by hand from what they say and where they run.

`a > b, c+2` are edges from `a`: to `b` of the same turn, and to `c` two turns later. `#` stands for
each of the eight chunks of a batch. Resources list their tasks in the order of the text.
"""

GRAPHS = {
    "sort_digits.rpeg:warmup": """
resource all: b, ce, actor, publish_actor, every_10/heldout_acc, every_10/stopping_acc
data: b > ce
data: ce > actor
data: actor > publish_actor, every_10/heldout_acc
data: publish_actor > every_10/heldout_acc
data: every_10/heldout_acc > every_10/stopping_acc
state: b > every_10/heldout_acc, b+1
state: actor > actor+1
order: every_10/stopping_acc > b+1
""",
    "sort_digits.rpeg:grpo": """
resource all: q, y, r, adv, pg, actor, publish_actor, every_25/heldout_acc
data: q > y
data: y > r, pg
data: r > adv
data: adv > pg
data: pg > actor
data: actor > publish_actor
data: publish_actor > every_25/heldout_acc
state: q > every_25/heldout_acc, q+1
state: y > publish_actor
state: actor > every_25/heldout_acc, actor+1
staleness: publish_actor > y+1
order: every_25/heldout_acc > q+1
""",
    # A batch waits four steps: what makes it runs that much ahead of what reads it.
    "async_corrections.rpeg:icepop": """
resource all: q, y, r, adv, prox, w, pg, actor, publish_actor
data: q > y
data: y > r+4, prox+4, w+4, pg+4
data: r > adv
data: adv > pg
data: prox > w, pg
data: w > pg
data: pg > actor
data: actor > publish_actor
state: q > q+1
state: y > publish_actor+4
state: prox > actor
state: actor > prox+1, actor+1
staleness: publish_actor > y+1
order: y > r
order: adv > prox
order: publish_actor > q+1
""",
    "dpo.rpeg": """
resource all: b, lp_ref, pref, actor, publish_actor, every_20/judged_loss, every_20/heldout_acc
data: b > lp_ref, pref
data: lp_ref > pref
data: pref > actor
data: actor > publish_actor, every_20/judged_loss
data: publish_actor > every_20/judged_loss
data: every_20/judged_loss > every_20/heldout_acc
state: b > every_20/judged_loss, b+1
state: actor > actor+1
order: every_20/heldout_acc > b+1
""",
    # One pass makes the judge's scores and the log-probs: it reads the samples once.
    "multi_turn_tools.rpeg": """
resource all: q, y, right, style/style, style/lp_old, r, adv, w, pg, actor
resource all: publish_actor, every_25/dev
data: q > y
data: y > right, style/style, w, pg
data: style/style > style/lp_old
data: right > r
data: style/lp_old > r, w, pg
data: r > adv
data: adv > pg
data: w > pg
data: pg > actor
data: actor > publish_actor
data: publish_actor > every_25/dev
state: q > every_25/dev, q+1
state: y > publish_actor
state: style/lp_old > actor
state: actor > style/style+1, actor+1, every_25/dev
staleness: publish_actor > y+1
order: right > style/style
order: adv > w
order: every_25/dev > q+1
""",
    "remax.rpeg": """
resource all: q, y, y0, r, r0, lp_ref, adv, pg, kl, actor, publish_actor, every_50
data: q > y, y0
data: y > r, lp_ref, pg, kl
data: y0 > r0
data: r > adv
data: r0 > adv
data: lp_ref > kl
data: adv > pg
data: pg > actor
data: kl > actor
data: actor > publish_actor
state: q > every_50, q+1
state: y > publish_actor
state: y0 > publish_actor
state: actor > every_50, actor+1
state: publish_actor > every_50
staleness: publish_actor > y+1, y0+1
order: y > y0
order: y0 > r
order: r > r0
order: r0 > lp_ref
order: lp_ref > adv
order: pg > kl
order: every_50 > q+1
""",
    "ppo_critic.rpeg@node": """
resource all: q, y, r, lp_old, lp_ref, v, rt, raw, adv, pg, vl, critic, every_1/actor
resource all: publish_actor, kl, every_50
data: q > y
data: y > r, lp_old, lp_ref, v, pg, vl
data: r > rt
data: lp_old > rt, pg, kl
data: lp_ref > rt, kl
data: v > raw, vl
data: rt > raw
data: raw > adv, vl
data: adv > pg
data: vl > critic
data: pg > every_1/actor
data: every_1/actor > publish_actor
state: v > critic
state: critic > v+1, critic+1, every_50
state: lp_old > every_1/actor
state: every_1/actor > lp_old+1, every_1/actor+1, every_50
state: y > publish_actor
state: publish_actor > every_50
state: rt > kl
state: kl > rt+1, kl+1, every_50
state: q > q+1, every_50
staleness: publish_actor > y+1
order: r > lp_old
order: lp_old > lp_ref
order: lp_ref > v
order: v > rt
order: pg > vl
order: critic > every_1/actor
order: publish_actor > kl
order: every_50 > q+1
""",
    "dapo.rpeg": """
resource all: acc/ys, acc/accs, late, r, adv, pg, actor, publish_actor, every_10/aime
data: acc/ys > acc/accs
data: acc/accs > late, r, pg
data: late > r
data: r > adv
data: adv > pg
data: pg > actor
data: actor > publish_actor
data: publish_actor > every_10/aime
state: acc/accs > acc/ys+1, publish_actor, every_10/aime
state: actor > actor+1, every_10/aime
staleness: publish_actor > acc/ys+1
order: every_10/aime > acc/ys+1
""",
    # A channel holds two batches: as many as the window is wide. The trainer takes one as its turn
    # starts, behind the last task of the turn before.
    "async_two_pools.rpeg@two": """
resource rollout: q, y, r
resource rollout to trainer: y_to_trainer, lp_to_trainer, r_to_trainer
resource trainer: adv, prox, w, pg, actor, publish_actor
resource trainer: every_25/publish_actor_to_trainer, every_25/heldout_acc
data: q > y
data: y > y_to_trainer, lp_to_trainer, r
data: r > r_to_trainer
data: y_to_trainer > prox, pg
data: lp_to_trainer > w
data: r_to_trainer > adv
data: adv > pg
data: prox > w, pg
data: w > pg
data: pg > actor
data: actor > publish_actor, every_25/publish_actor_to_trainer
data: every_25/publish_actor_to_trainer > every_25/heldout_acc
state: q > q+1, every_25/publish_actor_to_trainer
state: y > publish_actor
state: prox > actor
state: actor > prox+1, actor+1
state: publish_actor > every_25/publish_actor_to_trainer
staleness: publish_actor > y+3
order: r > q+1
order: y_to_trainer > lp_to_trainer
order: lp_to_trainer > r_to_trainer
order: r_to_trainer > y_to_trainer+1
order: adv > prox
order: every_25/heldout_acc > adv+1
back-pressure: every_25/heldout_acc > y_to_trainer+3, lp_to_trainer+3, r_to_trainer+3, r+3, q+4
""",
    # Verifiers on cores of their own score each response as it ends; the reference model starts on
    # the first of them; new weights travel while training goes on, but not into the next update.
    "async_grpo_alps64.rpeg@alps64": """
resource rollout: q, y #
resource rollout to trainer: y_to_trainer #, lp_to_trainer, r_to_trainer
resource checkers: r #
resource trainer: adv, lp_ref #, prox, w, pg, kl, actor
resource trainer: every_20/publish_actor_to_trainer, every_20/aime
resource trainer to rollout: publish_actor
data: q > y 1/8
data: y # > y_to_trainer #, r #
data: y_to_trainer # > lp_ref #
data: y 8/8 > lp_to_trainer
data: r 8/8 > r_to_trainer
data: r_to_trainer > adv
data: y_to_trainer 8/8 > prox, pg, kl
data: lp_to_trainer > w
data: prox > w, pg
data: w > pg
data: adv > pg
data: lp_ref 8/8 > kl
data: pg > actor
data: kl > actor
data: actor > publish_actor, every_20/publish_actor_to_trainer
data: every_20/publish_actor_to_trainer > every_20/aime
state: q > q+1, every_20/publish_actor_to_trainer
state: y 8/8 > publish_actor
state: prox > actor
state: actor > prox+1, actor+1
state: publish_actor > actor+1, every_20/publish_actor_to_trainer
staleness: publish_actor > y 1/8+3
data: y # > y next
order: y 8/8 > q+1
data: r # > r next
order: r 8/8 > r 1/8+1
data: y_to_trainer # > y_to_trainer next
order: y_to_trainer 8/8 > lp_to_trainer
order: lp_to_trainer > r_to_trainer
order: r_to_trainer > y_to_trainer 1/8+1
data: lp_ref # > lp_ref next
order: lp_ref 8/8 > adv
order: adv > prox
order: pg > kl
order: every_20/aime > lp_ref 1/8+1
order: publish_actor > publish_actor+1
back-pressure: every_20/aime > y_to_trainer 1/8+3, lp_to_trainer+3, r_to_trainer+3, q+4
""",
}
