import CommitLoop
import Protection
import StorePort
import Testing

@testable import Messenger

/// The chats in memory.
@Suite struct SummaryTests {
    /// What a job that fails by itself has changed is taken back.
    @Test func aFailedJobChangesNoChat() throws {
        let world = World(seed: 120)
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        var machine = bob.machine
        var unit = MessengerParticipants.Unit(in: .shard(.only))
        for user in ["alice", "carol", "alice"] {
            let chat = AccountID.services(user)
            try machine.put(ChatSummary(chat: chat, unread: machine.summary(chat).unread + 1), &unit)
        }
        #expect(machine.summary(.services("alice")).unread == 3 && machine.summaries.count == 2)
        unit.cancel(in: &machine, now: bob.now)
        #expect(machine.summaries == bob.machine.summaries && machine.summaries.count == 1)
    }
}
