# SPDX-License-Identifier: Apache-2.0
"""Draft models beside their target: MTP layers, EAGLE and EAGLE3 drafts, as a role of their own."""

import hashlib
import json
import shutil
import subprocess
import sys
import time
import unittest

import harness
from harness import REPOSITORY, Safetensors, needs_mpi, needs_python_client

sys.path.insert(0, str(REPOSITORY / "tests/support"))
import layout_checkpoint  # noqa: E402

FAMILIES = json.loads((REPOSITORY / "tests/fixtures/families.json").read_text())["families"]
LAYOUTS = REPOSITORY / "tests/fixtures/vllm-0.32.0"

# Per draft: its target, and what --speculative-config says of it.
DRAFTS = {
    "deepseek_v3_mtp": ("deepseek_v3_mtp", {"method": "mtp", "num_speculative_tokens": 1}),
    "llama_eagle": ("llama", {"method": "eagle", "num_speculative_tokens": 2}),
    "llama_eagle3": ("llama", {"method": "eagle3", "num_speculative_tokens": 2}),
    "llama_eagle3_shared": ("llama", {"method": "eagle3", "num_speculative_tokens": 2}),
}


class Drafts(harness.Case):
    def checkpoint(self, family):
        directory = self.root / family
        if not directory.exists():
            layout_checkpoint.write(str(self.root), family, FAMILIES[family])
        return directory

    def flags(self, draft):
        """The target's checkpoint, and the flag that asks for the draft."""
        target, config = DRAFTS[draft]
        if target != draft:
            config = config | {"model": str(self.checkpoint(draft))}
        return self.checkpoint(target), ["--speculative-config", json.dumps(config)]

    def start_pair(self, draft, *flags, **options):
        target, config = self.flags(draft)
        return self.start(target, *config, *flags, **options)

    def by_role(self):
        roles = {}
        for daemon in self.status():
            roles.setdefault(daemon["role"], {})[daemon["global_rank"]] = daemon
        return roles

    def assert_equals_recording(self, path, draft):
        """Every parameter that vLLM holds for the draft, under its name, with equal shape and bytes."""
        served = Safetensors(path)
        recorded = json.loads((LAYOUTS / f"{draft}_draft.tp1pp1.r0.json").read_text())
        recorded = {name: entry for name, entry in recorded.items() if entry[0] == "param"}
        self.assertEqual(sorted(served), sorted(recorded), draft)
        for name, (_, _, shape, digest) in recorded.items():
            self.assertEqual(list(served[name].shape), shape, name)
            self.assertEqual(hashlib.sha256(served[name].tobytes()).hexdigest()[:32], digest, name)

    def test_a_warm_up_finds_both(self):
        found = self.root / "found.json"
        command = f"{harness.BIN} wait --timeout 100 && {harness.BIN} attach --all --json > {found}"
        daemon = self.start_pair("llama_eagle", f"--warmup-exec={command}").wait_ready()
        self.assertIn("warmup=done", daemon.log)
        attached = json.loads(found.read_text())["daemons"]
        self.assertEqual(sorted(d["role"] for d in attached), ["draft", "target"])
        self.assert_stops_clean(daemon)

    def test_every_kind_of_draft_is_served_beside_its_target(self):
        for draft in DRAFTS:
            with self.subTest(draft):
                daemon = self.start_pair(draft).wait_ready()
                self.preload("wait", "--timeout", 10)
                roles = self.by_role()
                self.assertEqual({role: list(d) for role, d in roles.items()}, {"target": [0], "draft": [0]})
                target, of_draft = roles["target"][0], roles["draft"][0]
                self.assertEqual({target["state"], of_draft["state"]}, {"READY"})
                self.assertEqual(target["pid"], of_draft["pid"])
                self.assertEqual(target["job"], of_draft["job"])
                self.assertNotEqual(target["key"], of_draft["key"])
                sockets = sorted(p.name for p in self.sockets.glob("*.sock"))
                self.assertEqual(len(sockets), 2)
                self.assertEqual(sockets[0].removesuffix(".sock") + "_draft.sock", sockets[1])

                out = self.root / f"dump-{draft}"
                shards = json.loads(self.preload("attach", "--all", "--dump", out, "--json"))["daemons"]
                self.assertEqual([s["role"] for s in shards], ["target", "draft"])
                self.assertEqual(sorted(p.name for p in out.iterdir()),
                                 ["rank0.safetensors", "rank0_draft.safetensors"])  # fmt: skip
                self.assert_equals_recording(out / "rank0_draft.safetensors", draft)
                report = json.loads(self.preload("verify", "--json"))
                self.assertTrue(report["ok"])
                self.assertEqual(report["checked"], sum(s["tensors"] for s in shards))
                self.assert_stops_clean(daemon)
                shutil.rmtree(self.sockets)

    def test_commands_mean_the_target_unless_told(self):
        daemon = self.start_pair("llama_eagle", "--slot", "a").wait_ready()
        (shard,) = json.loads(self.preload("attach", "--json"))["daemons"]
        self.assertEqual(shard["role"], "target")
        (shard,) = json.loads(self.preload("attach", "--role", "draft", "--json"))["daemons"]
        self.assertEqual(shard["role"], "draft")
        self.assertTrue(list(self.sockets.glob("*.a_draft.sock")))
        self.assertEqual([d["role"] for d in json.loads(self.preload("status", "--role", "draft", "--json"))["daemons"]],
                         ["draft"])  # fmt: skip
        target, draft = self.checkpoint("llama"), self.checkpoint("llama_eagle")
        # Each against its own files.
        self.preload("verify", "--role", "draft", "--against", draft)
        self.preload("verify", "--role", "target", "--against", target)
        report = json.loads(self.preload("verify", "--against", target, "--json"))
        self.assertTrue(report["ok"])
        self.assertIn("--role draft --against", self.stderr)
        time.sleep(0.3)
        (shard,) = json.loads(self.preload("attach", "--role", "draft", "--expect-model", draft, "--json"))["daemons"]
        self.assertIn(shard["evidence"], ("receipt", "hash"))
        self.preload("attach", "--role", "draft", "--expect-model", target, status=7)
        self.assertIn("cannot be laid out like this", self.stderr)
        shards = json.loads(self.preload("attach", "--all", "--expect-model", target, "--json"))["daemons"]
        self.assertEqual([s["role"] for s in shards], ["target"])
        self.assert_stops_clean(daemon)

    def test_key_and_plan_know_the_draft(self):
        daemon = self.start_pair("llama_eagle3").wait_ready()
        roles = self.by_role()
        target, config = self.flags("llama_eagle3")
        for role in ("target", "draft"):
            key = json.loads(harness.run("key", target, *config, "--role", role, "--json"))
            self.assertEqual(key["key"], roles[role][0]["key"])
            self.assertEqual(key["fields"]["role"], role)
        plan = json.loads(harness.run("plan", "--model", target, *config, "--ranks", 2, "-pp", 2, "--json"))
        first, last = plan["ranks"]
        self.assertIsNone(first["draft"])
        (shard,) = json.loads(self.preload("attach", "--role", "draft", "--json", "--tensors"))["daemons"]
        self.assertEqual([t["name"] for t in last["draft"]["tensors"]], [t["name"] for t in shard["tensors"]])
        self.assertEqual(last["draft"]["bytes"], sum(t["bytes"] for t in shard["tensors"]))
        self.assertIn("draft ", harness.run("plan", "--model", target, *config, "--ranks", 1, "--summary"))
        self.assert_stops_clean(daemon)

    def test_dotted_keys_spell_the_same_config(self):
        draft = self.checkpoint("llama_eagle")
        flags = ["--speculative-config.method", "eagle", "--speculative_config.model", draft]
        daemon = self.start(self.checkpoint("llama"), *flags).wait_ready()
        self.assertEqual(sorted(self.by_role()), ["draft", "target"])
        self.assert_stops_clean(daemon)

    def test_one_role_can_be_released_or_stopped_and_the_other_goes_on(self):
        daemon = self.start_pair("llama_eagle").wait_ready()
        self.preload("release", "--role", "draft")
        self.assertEqual(self.by_role()["draft"][0]["state"], "RELEASED")
        self.preload("attach", "--role", "draft", status=7)
        self.preload("attach")
        self.preload("stop", "--role", "draft")
        self.assertEqual(list(self.by_role()), ["target"])
        self.assertEqual(list(self.sockets.glob("*_draft.sock")) + list(self.sockets.glob("*_draft.state")), [])
        self.preload("wait", "--timeout", 10)
        self.preload("attach")
        # Its place is free again: another job could take it.
        self.assertIsNone(daemon.process.poll())
        self.assert_stops_clean(daemon)

    def test_stopping_the_target_leaves_the_draft(self):
        daemon = self.start_pair("llama_eagle").wait_ready()
        self.preload("stop", "--role", "target")
        self.assertEqual(list(self.by_role()), ["draft"])
        self.preload("attach", "--role", "draft")
        self.assertIsNone(daemon.process.poll())
        self.assert_stops_clean(daemon)

    @needs_mpi
    def test_a_draft_lies_on_the_ranks_of_the_last_stage(self):
        for draft, flags in (("llama_eagle", ["-pp", 2]), ("deepseek_v3_mtp", ["-pp", 2])):
            with self.subTest(draft):
                daemon = self.start_pair(draft, *flags, ranks=2).wait_ready()
                self.preload("wait", "--timeout", 10)
                roles = self.by_role()
                self.assertEqual(sorted(roles["target"]), [0, 1])
                self.assertEqual(sorted(roles["draft"]), [1])
                out = self.root / f"dump-{draft}"
                self.preload("attach", "--all", "--dump", out)
                self.assertEqual(sorted(p.name for p in out.iterdir()),
                                 ["rank0.safetensors", "rank1.safetensors", "rank1_draft.safetensors"])  # fmt: skip
                self.assert_equals_recording(out / "rank1_draft.safetensors", draft)
                self.preload("verify")
                # The same draft whatever the target's stages.
                target, config = self.flags(draft)
                key = json.loads(harness.run("key", target, *config, "--role", "draft", "--json"))
                self.assertEqual(key["key"], roles["draft"][1]["key"])
                self.assert_stops_clean(daemon)
                shutil.rmtree(self.sockets)

    @needs_mpi
    def test_tensor_parallel_ranks_share_a_draft(self):
        for draft in ("llama_eagle3", "deepseek_v3_mtp"):
            for spread in ("always", "never"):
                with self.subTest(draft, spread=spread):
                    daemon = self.start_pair(draft, "-tp", 2, "--spread", spread, ranks=2).wait_ready()
                    self.assertEqual(sorted(self.by_role()["draft"]), [0, 1])
                    own = self.checkpoint(draft)
                    self.preload("verify", "--role", "draft", "--against", own)
                    self.preload("verify", "--role", "target", "--against", self.flags(draft)[0])
                    out = self.root / f"dump-{draft}-{spread}"
                    self.preload("attach", "--all", "--dump", out)
                    first, second = (Safetensors(out / f"rank{rank}_draft.safetensors") for rank in (0, 1))
                    stored = Safetensors(own / "model.safetensors")
                    if draft == "llama_eagle3":
                        # Rank 1 holds query heads 2 and 3, key and value head 1; half of each vocabulary.
                        qkv = second["model.layers.0.self_attn.qkv_proj.weight"]
                        self.assertTrue((qkv[:64] == stored["midlayer.self_attn.q_proj.weight"][64:]).all())
                        self.assertTrue((qkv[64:96] == stored["midlayer.self_attn.k_proj.weight"][32:]).all())
                        self.assertTrue((second["lm_head.weight"] == stored["lm_head.weight"][256:]).all())
                        self.assertTrue((first["model.fc.weight"] == stored["fc.weight"]).all())
                        self.assertTrue((second["draft_id_to_target_id"] == stored["d2t"]).all())
                    else:
                        block = "model.layers.4.mtp_block."
                        self.assertTrue((second[block + "self_attn.q_b_proj.weight"]
                                         == stored["model.layers.4.self_attn.q_b_proj.weight"][96:]).all())  # fmt: skip
                        self.assertTrue((first["model.layers.4.eh_proj.weight"]
                                         == stored["model.layers.4.eh_proj.weight"]).all())  # fmt: skip
                    self.assert_stops_clean(daemon)
                    shutil.rmtree(self.sockets)

    def test_other_methods_serve_the_target_and_say_so(self):
        llama = self.checkpoint("llama")
        for config, reason in (
            ({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}, "method ngram has no weights"),
            ({"model": "some/small-llama"}, "method draft_model has no weights"),
            ({"method": "mtp"}, "no rules for the mtp draft of LlamaForCausalLM"),
        ):
            with self.subTest(config):
                daemon = self.start(llama, "--speculative-config", json.dumps(config)).wait_ready()
                self.assertIn(reason, daemon.log)
                self.assertEqual(list(self.by_role()), ["target"])
                self.preload("wait", "--timeout", 10)
                self.preload("attach", "--role", "draft", status=7)
                self.assert_stops_clean(daemon)

    def refused(self, target, config, status, *reasons):
        daemon = self.start(target, "--speculative-config", json.dumps(config))
        self.assertEqual(daemon.wait_end(), status, daemon.log)
        for reason in reasons:
            self.assertIn(reason, daemon.log)
        return daemon

    def test_a_draft_that_cannot_be_served_ends_the_job_before_anything_is_loaded(self):
        llama = self.checkpoint("llama")
        absent = self.root / "absent"
        self.refused(llama, {"method": "eagle", "model": str(absent)}, 3, str(absent))
        self.preload("wait", "--timeout", 10, status=3)  # both roles left a tombstone
        failed = self.status()
        self.assertEqual(sorted(d["role"] for d in failed), ["draft", "target"])
        self.assertEqual({d["state"] for d in failed}, {"FAILED"})

        wide = self.root / "wide"
        shutil.copytree(self.checkpoint("llama_eagle"), wide)
        config = json.loads((wide / "config.json").read_text())
        (wide / "config.json").write_text(json.dumps(config | {"hidden_size": 256}))
        self.refused(llama, {"method": "eagle", "model": str(wide)}, 3,
                     "hidden_size of 256, its target one of 128")  # fmt: skip

        short = self.root / "short"
        shutil.copytree(self.checkpoint("llama_eagle"), short)
        path = short / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
        daemon = self.refused(llama, {"method": "eagle", "model": str(short)}, 3, "model.safetensors")
        self.assertNotIn("this rank read", daemon.log)

        self.refused(llama, {"method": "eagle3", "model": str(self.checkpoint("llama_eagle"))}, 3, "missing")
        self.refused(llama, {"method": "eagle"}, 2, 'needs "model"')
        self.refused(llama, {"method": "eagle", "model": str(absent), "draft_tensor_parallel_size": 2}, 2,
                     "neither 1 nor")  # fmt: skip

    def test_a_place_that_is_taken_is_seen_before_anything_is_read(self):
        first = self.start_pair("llama_eagle").wait_ready()
        self.preload("stop", "--role", "target")
        # The draft's place alone is taken now.
        second = self.start_pair("llama_eagle")
        self.assertEqual(second.wait_end(), 6, second.log)
        self.assertIn("_draft.lock", second.log)
        self.assertEqual(list(self.by_role()), ["draft"])
        third = self.start(self.checkpoint("llama")).wait_ready()  # the target's is free
        self.assertEqual(sorted(self.by_role()), ["draft", "target"])
        self.preload("stop")
        self.assertEqual(third.wait_end(), 0)
        self.assertEqual(first.wait_end(), 0)

    @needs_mpi
    def test_a_killed_rank_ends_both_roles_of_all(self):
        daemon = self.start_pair("llama_eagle", "-tp", 2, ranks=2).wait_ready()
        subprocess.run(["kill", "-9", str(self.pid_of_role("draft", 1))], check=True)
        self.assertEqual(daemon.wait_end(), 137, daemon.log)
        self.preload("attach", "--role", "draft", "--gpu", "host:0", status=7)
        self.preload("attach", "--gpu", "host:0", status=7)

    def pid_of_role(self, role, rank):
        return self.by_role()[role][rank]["pid"]

    @needs_python_client
    def test_python_attaches_a_draft_beside_its_target(self):
        for draft, owns in (
            ("deepseek_v3_mtp", (True, True)),
            ("llama_eagle", (True, False)),
            ("llama_eagle3", (True, True)),
            ("llama_eagle3_shared", (False, True)),
        ):
            with self.subTest(draft):
                daemon = self.start_pair(draft).wait_ready()
                script = f"""
import hashlib, json, sys
sys.path.insert(0, {str(REPOSITORY / "python")!r})
import preload
with preload.attach(socket_dir={str(self.sockets)!r}) as target, \\
     preload.attach(socket_dir={str(self.sockets)!r}, role="draft") as draft:
    assert target.info.role == "target" and draft.info.role == "draft"
    attributes = draft.info.metadata["attributes"]
    assert "has_own_lm_head" not in target.info.metadata["attributes"]
    names = [name for name in draft]
    print(json.dumps({{
        "owns": [attributes["has_own_embed_tokens"], attributes["has_own_lm_head"]],
        "names": names,
        "target_has_them": [n in target for n in ("model.embed_tokens.weight", "lm_head.weight")],
        "digests": [hashlib.sha256(draft[name].numpy().tobytes()).hexdigest()[:32] for name in names],
    }}))
"""
                done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60,
                                      env=harness.python_environment())  # fmt: skip
                self.assertEqual(done.returncode, 0, done.stderr)
                seen = json.loads(done.stdout)
                self.assertEqual(tuple(seen["owns"]), owns)
                self.assertEqual(seen["target_has_them"], [True, True])
                recorded = json.loads((LAYOUTS / f"{draft}_draft.tp1pp1.r0.json").read_text())
                recorded = {n: e[3] for n, e in recorded.items() if e[0] == "param"}
                self.assertEqual(dict(zip(seen["names"], seen["digests"])), recorded)
                self.assert_stops_clean(daemon)
                shutil.rmtree(self.sockets)


if __name__ == "__main__":
    unittest.main()
