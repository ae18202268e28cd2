"""What if: the same workload on machines of several sizes and with disks of several speeds, without any of them.

Simulations compute for a while and write a checkpoint each; at the end all results are merged. How many nodes pay, and
do faster disks pay more?
"""

from penstock.sim import Node, Normal, Simulation, StorageLayer, Workload, sweep

GB = 1_000_000_000


def workload():
    work = Workload()
    results = []
    for number in range(960):
        result = work.task("simulate", seconds=Normal(60.0, 5.0), makes=GB // 100)
        work.io_task(
            "checkpoint", after=[result], constraint="40MB/s", writes=[(f"/ssd/{number}", 3 * GB)], capacity=3 * GB
        )
        results.append(result)
    work.task("merge", seconds=20.0, after=results)
    return work


def simulate(nodes, disk):
    # The more write at the same time, the less a disk achieves.
    curve = tuple((streams, rate * disk) for streams, rate in ((1, 0.7), (8, 1.0), (64, 0.2)))
    ssd = StorageLayer("ssd", "/ssd", bandwidth=disk, curve=curve)
    machines = [Node(f"node-{i}", cpus=48, memory=96 * GB, storage=(ssd,), io_executors=64) for i in range(nodes)]
    return Simulation(machines, workload(), seed=1).run()


if __name__ == "__main__":
    points = sweep(simulate, {"nodes": [2, 4, 8], "disk": [0.45 * GB, 0.9 * GB]})
    best = min(points, key=lambda point: point.outcome.makespan)
    print("nodes  disk      until the last task  cores in use")
    for point in points:
        nodes, disk = point.settings.values()
        outcome = point.outcome
        share = sum(outcome.busy.values()) / (48 * nodes * outcome.makespan)
        mark = "  <- shortest" if point is best else ""
        print(f"{nodes:5}  {disk / 1e6:.0f} MB/s {outcome.makespan:17.0f} s {share:13.0%}{mark}")
