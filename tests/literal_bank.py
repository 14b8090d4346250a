"""The original rules of the skill bank, for the record; NumPy only.

`python -m tests.literal_bank` prints docs/d2skill.md's table of them against ours. They differ:
a match tests the retrieved slot alone; the one candidate lives in a slot (the first free one, else
an evicted skill, destroyed at once) and any observation that does not fit starts it again;
directions are not made unit again; age counts without limit in an eviction; no exploration, no
abstention, no cells; influence at the end point; a utility that shares out Delta; raw alpha.
"""

import numpy as np

FREE, CANDIDATE, PROTECTED, ACTIVE, INACTIVE = range(5)
PARAMETERS = {
    "representation": "direction_magnitude",
    "similarity_threshold": 0.7,
    "direction_threshold": 0.5,
    "utility_weight": 0.1,
    "alpha": 0.3,
    "min_utility": -0.2,
    "beta": 0.1,
    "max_correction": 1.0,
    "min_confirmations": 3,
    "protection_age": 10,
    "inactivity_age": 200,
}


def cosine(a, b):
    bottom = np.linalg.norm(a, axis=-1) * np.linalg.norm(b)
    return np.where(bottom > 1e-12, a @ b / np.where(bottom > 1e-12, bottom, 1), -2.0)


class LiteralBank:
    """N skills of D dimensions under the original rules."""

    def __init__(self, slots, dim, **parameters):
        assert not parameters.keys() - PARAMETERS.keys()
        self.p = {**PARAMETERS, **parameters}
        self.keys, self.directions, self.corrections = np.zeros((3, slots, dim))
        self.scale, self.utility, self.influence = np.zeros((3, slots))
        self.state, self.age, self.protection, self.streak = np.zeros((4, slots), int)

    @property
    def live(self):
        return (self.state == PROTECTED) | (self.state == ACTIVE)

    def retrieve(self, h):
        """Return slot or -1 and the raw correction."""
        near = cosine(self.keys, h)
        may = self.live & (near >= self.p["similarity_threshold"])
        may &= self.utility >= self.p["min_utility"]
        if not may.any():
            return -1, np.zeros(self.keys.shape[1])
        score = near + self.p["utility_weight"] * np.clip(self.utility, -1, 1)
        slot = int(np.argmax(np.where(may, score, -np.inf)))
        return slot, self.p["alpha"] * self.applied(slot)

    def applied(self, slot):
        if self.p["representation"] == "full":
            return self.corrections[slot]
        return self.scale[slot] * self.directions[slot]

    def search(self, h):
        """Return the corrections [B, D] of contexts [B, D]."""
        return np.array([self.retrieve(x)[1] for x in h])

    def update(self, h, g):
        """Tick, then blend into the retrieved slot or feed the one candidate."""
        self.tick()
        size = np.linalg.norm(g)
        if size == 0:
            return "NONE"
        slot, _ = self.retrieve(h)
        if slot >= 0 and cosine(self.directions[slot], g) >= self.p["direction_threshold"]:
            self.blend(slot, h, g)
            self.age[slot] = 0
            return "MATCH"
        waiting = np.flatnonzero(self.state == CANDIDATE)
        if len(waiting):
            place, decision = waiting[0], "CANDIDATE"
            if self.fits(place, h, g):
                self.blend(place, h, g)
                self.streak[place] += 1
            else:
                self.start(place, h, g)
                decision = "RESET"
        else:
            place, decision = self.room(), "SEED"
            if place < 0:
                return "NONE"
            self.start(place, h, g)
        if self.streak[place] >= self.p["min_confirmations"]:
            self.state[place], self.protection[place] = PROTECTED, self.p["protection_age"]
            decision = "PROMOTE"
        return decision

    def fits(self, slot, h, g):
        return (
            cosine(self.keys[slot], h) >= self.p["similarity_threshold"]
            and cosine(self.directions[slot], g) >= self.p["direction_threshold"]
        )

    def blend(self, slot, h, g):
        beta, size = self.p["beta"], np.linalg.norm(g)
        self.keys[slot] += beta * (h - self.keys[slot])
        self.directions[slot] += beta * (g / size - self.directions[slot])  # not unit again
        self.corrections[slot] += beta * (g - self.corrections[slot])
        self.corrections[slot] = self.clipped(self.corrections[slot])
        moved = self.scale[slot] + beta * (size - self.scale[slot])
        self.scale[slot] = min(moved, self.p["max_correction"])

    def start(self, slot, h, g):
        size = np.linalg.norm(g)
        self.keys[slot], self.directions[slot] = h, g / size
        self.corrections[slot] = self.clipped(g)
        self.scale[slot] = min(size, self.p["max_correction"])
        self.state[slot], self.age[slot], self.streak[slot] = CANDIDATE, 0, 1
        self.utility[slot] = self.influence[slot] = 0

    def clipped(self, vector):
        return vector * min(1.0, self.p["max_correction"] / max(np.linalg.norm(vector), 1e-300))

    def room(self):
        """Return the first free slot, else the inactive one to evict, else -1."""
        if (self.state == FREE).any():
            return int(np.argmax(self.state == FREE))
        idle = (self.state == INACTIVE) & (self.protection == 0)
        if not idle.any():
            return -1
        return int(np.argmax(np.where(idle, 1e-4 * self.age - self.utility, -np.inf)))

    def tick(self):
        self.age[self.state != FREE] += 1
        self.protection = np.maximum(self.protection - 1, 0)
        grown = (self.state == PROTECTED) & (self.protection == 0)
        idle = (self.state == ACTIVE) & (self.age >= self.p["inactivity_age"])
        self.state[grown], self.age[grown] = ACTIVE, 0
        self.state[idle] = INACTIVE

    def end_episode(self, delta):
        """U = (1 - beta)*U + beta*Delta*max(I, 0)/sum max(I, 0) where I > 0."""
        weight = np.maximum(self.influence, 0)
        if weight.sum() > 0 and abs(delta) > 1e-12:
            share, beta = weight / weight.sum(), self.p["beta"]
            moved = (1 - beta) * self.utility + beta * delta * share
            self.utility = np.where(weight > 0, moved, self.utility)
        self.influence[:] = 0


if __name__ == "__main__":
    from tests.literal_table import main

    main()
