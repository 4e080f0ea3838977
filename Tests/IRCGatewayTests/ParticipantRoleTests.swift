import CommitLoop
import DeviceDirectory
import Devices
import Envelope
import IRCGateway
import Protection
import StorePort
import Synchronization
import Testing

/// Jobs for the role that a gateway does not have.
@Suite struct ParticipantRoleTests {
    private final class Reports: Sendable {
        let count = Mutex(0)
    }

    /// The replies to one job, whose unit must change no row, and how often it was reported.
    private func replies(_ world: World, _ job: IRCJob) throws -> (replies: [IRCReply], reports: Int) {
        let reports = Reports()
        world.participants.onOtherRole = { _ in reports.count.withLock { $0 += 1 } }
        let batch = world.participants.prepare([job], now: world.now)
        let isEmpty = batch.isEmpty
        #expect(isEmpty)
        let committed = try world.store.commit(batch.groups)
        let replies = world.participants.complete(batch, committed: committed, now: world.now)
        return (replies.map(\.reply), reports.count.withLock { $0 })
    }

    @Test func aGatewayInFrontRefusesAJobOfAPersonsOwnDevice() throws {
        let front = try World(.opportunistic, seed: 71)
        let id = ConnectionID(1)
        let (introduced, reports) = try replies(front, .sidecar(.introduce(connection: id, ticket: 5, capacity: 400)))
        guard case .sidecar(.introduction(5, let bodies))? = introduced.first else {
            Issue.record("no answer")
            return
        }
        #expect(bodies.isEmpty && introduced.count == 1 && reports == 1)
        let asked = try replies(front, .sidecar(.askRoom(RoomRequestJob(connection: id, act: .protect, room: "#room"))))
        guard case .sidecar(.roomAsked(_, nil))? = asked.replies.first else {
            Issue.record("no answer")
            return
        }
        // Nothing waits for the end of these, so that only the report shows them.
        for job in [IRCSidecarJob.revoke(DeviceID(4)), .replenish(id), .decide(.nick("bob"), .verify)] {
            let refused = try replies(front, .sidecar(job))
            #expect(refused.replies.isEmpty && refused.reports == 1)
        }
    }

    @Test func aSidecarRefusesAJobOfTheDirectory() throws {
        let sidecar = try World(.opportunistic, seed: 72, sidecar: true)
        let job = DirectoryJob(
            connection: ConnectionID(1), id: 9, account: .services("alice"), request: .show(.services("alice")))
        let refused = try replies(sidecar, .directory(job))
        guard case .directory(9, .refused(let reason))? = refused.replies.first else {
            Issue.record("no answer")
            return
        }
        #expect(reason == "this gateway has no directory" && refused.reports == 1)
    }
}
