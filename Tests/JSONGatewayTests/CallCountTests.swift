import JSONGateway
import Protection
import Testing

@Suite struct CallCountTests {
    private final class Counts {
        var counts: CallCounts
        init(capacity: Int = 1000) { counts = CallCounts(capacity: capacity) }
        func mayCall(_ account: AccountID, now: Int64) -> Bool { counts.mayCall(account, now: now) }
    }

    @Test func anAccountHasALimitInEachPeriod() {
        let counts = Counts()
        let alice = AccountID.services("alice")
        for _ in 0..<CallCounts.callLimit { #expect(counts.mayCall(alice, now: 0)) }
        let end = CallCounts.period
        #expect(!counts.mayCall(alice, now: end - 1))
        #expect(counts.mayCall(.services("bob"), now: end - 1))
        #expect(counts.mayCall(alice, now: end))
    }

    /// Whoever has many accounts must not lift the limit of the one that has reached it.
    @Test func manyAccountsDoNotLiftTheLimitOfOne() {
        let counts = Counts(capacity: 10)
        let alice = AccountID.services("alice")
        for _ in 0..<CallCounts.callLimit { _ = counts.mayCall(alice, now: 0) }
        for number in 0..<1000 {
            #expect(counts.mayCall(.services("other\(number)"), now: 1))
            #expect(!counts.mayCall(alice, now: 1))
        }
    }

    @Test func periodsThatHaveEndedMakeRoomFirst() {
        let counts = Counts(capacity: 3)
        let (alice, bob) = (AccountID.services("alice"), AccountID.services("bob"))
        _ = counts.mayCall(.services("early"), now: 0)
        _ = counts.mayCall(.services("early too"), now: 0)
        for _ in 0..<CallCounts.callLimit { _ = counts.mayCall(alice, now: CallCounts.period - 1) }
        #expect(counts.mayCall(bob, now: CallCounts.period))
        #expect(!counts.mayCall(alice, now: CallCounts.period))
    }
}
