import Foundation
import Messenger
import Synchronization
import TestKit
import Testing

@testable import PawlMessenger

/// Group calls: a server (SFU) with pinned keys, or one without keys that is allowed by name.
@Suite struct CallGroupTests {
    private func wait(_ app: CallApp, for event: String) async throws {
        try await eventuallyAsync("\(app.name) has \(event), not \(app.log), \(app.messenger.callStatistics)") {
            app.log.contains(event)
        }
    }

    /// The server's messenger under the account `conference`, and people who pin its keys.
    private func group(
        _ server: SpoofServer, _ names: [Username]
    ) async throws -> (CallApp, [CallApp]) {
        var options = CallOptions()
        options.isServer = true
        let conference = try await CallApp.register("conference", at: server, options: options)
        var people: [CallApp] = []
        for name in names {
            let person = try await CallApp.register(name, at: server)
            try await person.app.chat("conference").sendText("hello")
            try await eventuallyAsync("keys are exchanged") {
                conference.app.chat(name).safetyNumber() != nil
                    && person.app.chat("conference").safetyNumber() != nil
            }
            try pin(person, try #require(conference.app.chat(name).safetyNumber()))
            people.append(person)
        }
        return (conference, people)
    }

    private func pin(_ person: CallApp, _ number: String) throws {
        var options = CallOptions()
        options.sfu = .device(account: "conference", safetyNumber: number)
        person.messenger.setCallSession(person.session, options: options)
    }

    private func call(_ people: [CallApp], by caller: CallApp, id: String) -> Call {
        var call = Call(
            sharedCommunicationId: id, sender: caller.participant(caller.name),
            recipients: (["sfu"] + people.map(\.name).filter { $0 != caller.name }).map(caller.participant))
        call.sessionDescription = SessionDescription(sdp: "offer of \(caller.name)", type: .offer)
        return call
    }

    @Test func aCallOfThreeIsSignalledThroughTheServer() async throws {
        let server = SpoofServer()
        let (conference, people) = try await group(server, ["alice", "bob", "carol"])
        let (alice, bob, carol) = (people[0], people[1], people[2])
        var calls: [String: Call] = [:]
        // Alice invites. The others join with the call that they were invited to.
        let first = call(people, by: alice, id: "room 7")
        calls["alice"] = first
        for person in [bob, carol] {
            try await alice.messenger.sendGroupControl(.invitation, to: person.name, call: first)
            try await wait(person, for: "invitation")
            // A person who is invited may also make a call of their own under the same id.
            calls[person.name] = call(people, by: person, id: "room 7")
        }
        for person in people {
            try await person.messenger.sendOffer(call: try #require(calls[person.name]))
            try await person.messenger.sendCandidate(.numbered(1), call: try #require(calls[person.name]))
            try await wait(conference, for: "offer offer of \(person.name)")
            var answer = try #require(conference.session.records.calls.last { $0.sender.secretName == person.name })
            let metadata = try #require(conference.session.records.metadata.last)
            #expect(metadata.offerSecretName == person.name)
            answer.sessionDescription = SessionDescription(sdp: "answer for \(person.name)", type: .answer)
            try await conference.messenger.sendAnswer(call: answer, metadata: metadata)
            try await conference.messenger.sendCandidate(.numbered(2), call: answer)
            try await wait(person, for: "sfu answer answer for \(person.name)")
            try await wait(person, for: "sfu candidate 2")
        }
        // The list of participants: whole, not empty, and never an older one.
        let roster = people.map { $0.participant($0.name) }
        func answered(_ person: CallApp) throws -> Call {
            try #require(conference.session.records.calls.last { $0.sender.secretName == person.name })
        }
        for (list, version) in [(roster, 2), ([], 3), (Array(roster.dropLast()), 1), (roster, 2)] {
            try await conference.messenger.sendGroupControl(
                .participants(list, version: version), to: "bob", call: try answered(bob))
        }
        try await conference.messenger.sendGroupControl(
            .participantDemuxId(participantId: "carol", demuxId: 7), to: "bob", call: try answered(bob))
        try await wait(bob, for: "demux carol 7")
        #expect(bob.log.filter { $0.hasPrefix("participants") } == ["participants 2: alice bob carol"])
        // Keys go from each to each, and never to the server.
        for sender in people {
            let own = try #require(calls[sender.name])
            for recipient in people where recipient.name != sender.name {
                try await sender.messenger.sendCiphertext(
                    recipient: recipient.name, connectionId: "pair \(sender.name) \(recipient.name)",
                    ciphertext: Data("key of \(sender.name)".utf8), call: own)
            }
            for name in ["sfu", "conference", "mallory", sender.name] {
                await #expect(throws: CallError.notParticipant) {
                    try await sender.messenger.sendCiphertext(
                        recipient: name, connectionId: "", ciphertext: Data(), call: own)
                }
            }
        }
        for person in people {
            for other in people where other.name != person.name {
                try await wait(person, for: "ciphertext from \(other.name)")
            }
            #expect(
                person.session.records.ciphertexts.allSatisfy {
                    $0.connectionId == "pair \($0.from) \(person.name)"
                        && $0.bytes == Data("key of \($0.from)".utf8)
                })
        }
        #expect(conference.session.records.ciphertexts.isEmpty)
        // Alice leaves.
        try await alice.messenger.didEnd(call: first, endState: .userInitiated)
        try await wait(conference, for: "end partnerInitiated")
        for person in [bob, carol] { try await wait(person, for: "left alice") }
        // The server ends the call of Bob.
        try await conference.messenger.didEnd(call: try answered(bob), endState: .userInitiated)
        try await wait(bob, for: "end partnerInitiated")
        for app in people + [conference] { app.close() }
    }

    @Test func aServerWithOtherKeysGetsNothing() async throws {
        let server = SpoofServer()
        let (conference, people) = try await group(server, ["alice", "bob"])
        let (alice, bob) = (people[0], people[1])
        // Bob's number is not Alice's.
        try pin(alice, try #require(conference.app.chat("bob").safetyNumber()))
        let own = call(people, by: alice, id: "room")
        let before = server.receivedBytes.count
        await #expect(throws: CallError.otherServer) { try await alice.messenger.sendOffer(call: own) }
        #expect(server.receivedBytes.count == before)
        // Nothing of it is taken either.
        try await bob.messenger.sendOffer(call: call(people, by: bob, id: "room"))
        try await wait(conference, for: "offer offer of bob")
        try pin(bob, "0")
        // It is not told of the end either.
        await #expect(throws: CallError.otherServer) {
            try await bob.messenger.didEnd(call: call(people, by: bob, id: "room"), endState: .userInitiated)
        }
        var answer = try #require(conference.session.records.calls.last)
        answer.sessionDescription = SessionDescription(sdp: "a", type: .answer)
        try await conference.messenger.sendAnswer(
            call: answer, metadata: try #require(conference.session.records.metadata.last))
        try await eventuallyAsync("it is dropped") {
            bob.messenger.callStatistics.dropped["notParticipant"] == 1
        }
        #expect(!bob.log.contains("sfu answer a") && !conference.log.contains { $0.hasPrefix("end") })
        for app in people + [conference] { app.close() }
    }

    /// An account that is named as the server is in calls is a person like any other.
    @Test func anAccountOfTheServersNameIsNotTheServer() async throws {
        let server = SpoofServer()
        let (conference, people) = try await group(server, ["alice", "bob"])
        let impostor = try await CallApp.register("sfu", at: server)
        let own = call(people, by: people[0], id: "room")
        try await people[0].messenger.sendOffer(call: own)
        try await wait(conference, for: "offer offer of alice")
        #expect(impostor.log.isEmpty)
        var bare = own
        bare.metadata = nil
        let answer = CallEnvelope(
            callId: "room", call: own.id, from: "sfu", to: "alice", .sdpAnswer, (1, 0),
            .init(call: bare, sdp: SessionDescription(sdp: "forged", type: .answer)))
        try await impostor.app.chat("alice").sendText("hello")
        try await eventuallyAsync("keys are exchanged") { impostor.app.chat("alice").safetyNumber() != nil }
        try await impostor.messenger.send(
            SignalJob(to: "alice", kind: CallRouter.kind, text: try answer.text(), lifetime: 30))
        // Another person cannot send a list of participants, or a key of somebody else.
        var roster = answer
        (roster.type, roster.from) = (.groupControl, "sfu")
        roster.payload = .init(control: .participants([people[0].participant("sfu")], version: 9))
        try await impostor.messenger.send(
            SignalJob(to: "alice", kind: CallRouter.kind, text: try roster.text(), lifetime: 30))
        let alice = people[0]
        try await eventuallyAsync("both are dropped") {
            alice.messenger.callStatistics.dropped.values.reduce(0, +) == 2
        }
        #expect(alice.log.isEmpty)
        for app in people + [conference, impostor] { app.close() }
    }

    /// The person's own call says who takes part.
    @Test func aCiphertextOfSomebodyElseIsDropped() async throws {
        let server = SpoofServer()
        let (conference, people) = try await group(server, ["alice", "bob", "mallory"])
        let (alice, bob, mallory) = (people[0], people[1], people[2])
        let own = call([alice, bob], by: alice, id: "room")
        try await alice.messenger.sendOffer(call: own)
        try await wait(conference, for: "offer offer of alice")
        let forged = call(people, by: mallory, id: "room")
        try await mallory.messenger.sendCiphertext(
            recipient: "alice", connectionId: "c", ciphertext: Data("key".utf8), call: forged)
        try await eventuallyAsync("it is dropped") {
            alice.messenger.callStatistics.dropped["notParticipant"] == 1
        }
        #expect(alice.session.records.ciphertexts.isEmpty)
        for app in people + [conference] { app.close() }
    }

    /// Lists of participants and their media numbers come from the server only, whoever else names a call in them.
    @Test func aParticipantForgesNoList() async throws {
        let server = SpoofServer()
        let (conference, people) = try await group(server, ["alice", "bob"])
        let (alice, bob) = (people[0], people[1])
        let own = call(people, by: alice, id: "room")
        try await alice.messenger.sendOffer(call: own)
        try await wait(conference, for: "offer offer of alice")
        // Bob has a session with her, and invites her into the call in which she is.
        try await bob.messenger.sendGroupControl(.invitation, to: "alice", call: call(people, by: bob, id: "room"))
        try await wait(alice, for: "invitation")
        var bare = call(people, by: bob, id: "room")
        bare.metadata = nil
        let controls: [GroupControl] = [
            .participants([bob.participant("bob"), bob.participant("mallory")], version: .max),
            .participantDemuxId(participantId: "bob", demuxId: 7),
        ]
        for (number, control) in controls.enumerated() {
            let envelope = CallEnvelope(
                callId: "room", call: bare.id, from: "bob", to: "alice", .groupControl, (.max, number),
                .init(call: bare, control: control))
            try await bob.messenger.send(
                SignalJob(to: "alice", kind: CallRouter.kind, text: try envelope.text(), lifetime: 30))
        }
        try await eventuallyAsync("both are dropped, \(alice.log)") {
            alice.messenger.callStatistics.dropped["notParticipant"] == 2
        }
        #expect(alice.log == ["invitation"])
        for app in people + [conference] { app.close() }
    }

    /// Somebody calls under the id of a group call in which the person is: to reject it does not leave the group call.
    @Test func theEndOfACallOfTwoLeavesAGroupCallOfTheSameID() async throws {
        let server = SpoofServer()
        let (conference, people) = try await group(server, ["alice", "bob"])
        let alice = people[0]
        let mallory = try await CallApp.register("mallory", at: server)
        let own = call(people, by: alice, id: "room")
        try await alice.messenger.sendOffer(call: own)
        try await alice.messenger.sendCiphertext(
            recipient: "bob", connectionId: "c", ciphertext: Data([1]), call: own)
        try await wait(conference, for: "offer offer of alice")
        let other = mallory.call("alice", sdp: "m", id: "room")
        try await mallory.messenger.sendOffer(call: other)
        try await wait(alice, for: "offer m")
        try await alice.messenger.didEnd(call: other, endState: .partnerInitiatedRejected)
        try await wait(mallory, for: "end partnerInitiatedRejected")
        // The server and Bob still have her.
        try await alice.messenger.sendCandidate(.numbered(1), call: own)
        try await wait(conference, for: "candidate 1")
        #expect(!conference.log.contains { $0.hasPrefix("end") })
        try await alice.messenger.didEnd(call: own, endState: .userInitiated)
        try await wait(conference, for: "end partnerInitiated")
        for app in people + [conference, mallory] { app.close() }
    }

    // MARK: A server without keys

    @Test func aServerWithoutKeysIsUsedOnlyIfItIsAllowedByName() async throws {
        let server = SpoofServer()
        let alice = try await CallApp.register("alice", at: server)
        let bob = try await CallApp.register("bob", at: server)
        let own = call([alice, bob], by: alice, id: "room")
        await #expect(throws: CallError.noServer) { try await alice.messenger.sendOffer(call: own) }
        #expect(throws: CallError.noServer) {
            try alice.messenger.receivePlainSignal("{}", fromServer: "media.example.org")
        }
        let sent = Mutex<[String]>([])
        var options = CallOptions()
        options.sfu = .plain(name: "media.example.org") { text in sent.withLock { $0.append(text) } }
        alice.messenger.setCallSession(alice.session, options: options)
        #expect(throws: CallError.noServer) {
            try alice.messenger.receivePlainSignal("{}", fromServer: "other.example.org")
        }
        try await alice.messenger.sendOffer(call: own)
        try await alice.messenger.sendCandidate(.numbered(1), call: own)
        let envelopes = try sent.withLock { try $0.map { try CallEnvelope(text: $0) } }
        #expect(envelopes.map(\.type) == [.sdpOffer, .iceCandidate] && envelopes.allSatisfy { $0.to == "sfu" })
        let offer = try #require(envelopes.first)
        func answer(_ kind: CallEnvelope.Kind, _ number: Int, _ payload: CallEnvelope.Payload) throws -> String {
            try CallEnvelope(
                callId: "room", call: offer.call, from: "sfu", to: "alice", kind, (5, number), payload
            ).text()
        }
        let sdp = SessionDescription(sdp: "from the server", type: .answer)
        var bare = own
        bare.metadata = nil
        let text = try answer(.sdpAnswer, 0, .init(call: bare, sdp: sdp))
        try alice.messenger.receivePlainSignal(text, fromServer: "media.example.org")
        try alice.messenger.receivePlainSignal(
            try answer(.iceCandidate, 1, .init(candidate: .numbered(4))), fromServer: "media.example.org")
        try await wait(alice, for: "sfu answer from the server")
        try await wait(alice, for: "sfu candidate 4")
        // Ciphertexts, offers and what is for other devices are not taken from it.
        for kind in [CallEnvelope.Kind.sdpOffer, .ciphertext, .answered, .groupControl] {
            let payload = CallEnvelope.Payload(
                call: bare, sdp: sdp, connectionId: "c", ciphertext: Data([1]), control: .invitation, caller: "bob")
            try alice.messenger.receivePlainSignal(try answer(kind, 2, payload), fromServer: "media.example.org")
        }
        #expect(alice.messenger.callStatistics.dropped == ["notParticipant": 4])
        #expect(alice.log.count == 2)
        // What participants send each other is sealed all the same.
        let count = sent.withLock { $0.count }
        try await alice.messenger.sendCiphertext(
            recipient: "bob", connectionId: "c", ciphertext: Data("key".utf8), call: own)
        #expect(sent.withLock { $0.count } == count && !server.receivedBytes.isEmpty)
        // The server ends the call.
        try alice.messenger.receivePlainSignal(
            try answer(.end, 2, .init(endState: "userInitiated")), fromServer: "media.example.org")
        try await wait(alice, for: "end partnerInitiated")
        for app in [alice, bob] { app.close() }
    }
}
