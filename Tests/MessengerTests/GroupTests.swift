import DeviceSessions
import Devices
import DoubleRatchet
import Envelope
import Messenger
import Protection
import StorePort
import TestKit
import Testing

/// Groups in the machine: members, versions, forks, and messages that overtake versions.
@Suite struct GroupTests {
    private let world = World(seed: 40)

    private func people(_ names: String...) throws -> [World.Device] { try names.map { try world.person($0) } }

    /// A group of the first person and the others.
    private func group(_ devices: [World.Device], _ name: String = "team") throws -> GroupID {
        let others = devices.dropFirst().map(\.user)
        let change = GroupChange.create(name: name, metadata: [1, 2], members: others)
        let state = try #require(world.change(change, by: devices[0]))
        world.deliver()
        return state.id
    }

    @Test func textsReachAllMembersAndAreEndToEndEncrypted() throws {
        let devices = try people("alice", "bob", "carol")
        let group = try group(devices)
        for (number, device) in devices.enumerated() {
            #expect(device.send("text \(number)", in: group) != nil)
            world.deliver()
        }
        for device in devices {
            #expect(device.members(of: group) == ["alice", "bob", "carol"])
            #expect(device.texts(in: group) == ["text 0", "text 1", "text 2"])
            #expect(device.history(in: group).allSatisfy { $0.protection == .device })
        }
        #expect(devices[2].history(in: group).map(\.author) == [.services("alice"), .services("bob"), nil])
        // The private chats have nothing of it.
        #expect(devices[1].texts(with: "alice").isEmpty)
    }

    /// What is sent to other devices than before waits for what is under way to any of them.
    @Test(arguments: [true, false]) func whatADeviceGetsStaysInOrder(severalAtOnce: Bool) throws {
        let devices = try people("alice", "bob", "carol")
        let (alice, bob) = (devices[0], devices[1])
        alice.run([.sendsSeveral(severalAtOnce)])
        let group = try group(devices)
        alice.send("in private", to: "carol")
        world.deliver()
        alice.send("one", in: group)
        let first = alice.attempts
        alice.attempts = []
        #expect(world.change(.remove(["carol"]), of: group, by: alice) != nil)
        alice.send("two", in: group)
        alice.send("three", to: "bob")
        #expect(alice.attempts.isEmpty, "something overtakes what is under way")
        // A process that ends does not know any more what was under way.
        try alice.restart()
        let again = alice.attempts.count
        #expect((1...first.count).contains(again))
        alice.send("four", in: group)
        #expect(alice.attempts.count == again)
        world.deliver()
        #expect(bob.texts(in: group) == ["one", "two", "four"])
        #expect(bob.texts(with: "alice") == ["three"])
        #expect(devices[2].texts(in: group) == ["one"])
        // When nothing waits any more, people do not wait for each other.
        alice.send("five", to: "bob")
        alice.send("six", to: "carol")
        #expect(alice.attempts.count == 2)
    }

    /// Blobs tell the server neither names nor members.
    @Test func publishedVersionsAreSealed() throws {
        let devices = try people("alice", "bobbington")
        _ = try group(devices, "surprise party")
        for blob in world.blobs.values {
            for canary in ["surprise party", "bobbington", "alice"] {
                let isThere = blob.indices.contains { blob[$0...].starts(with: canary.utf8) }
                #expect(!isThere)
            }
        }
    }

    @Test func aRemovedMemberReadsNothingMoreAndAnAddedOneNothingOlder() throws {
        let devices = try people("alice", "bob", "carol")
        let dave = try world.person("dave")
        let group = try group(devices)
        devices[0].send("for three", in: group)
        world.deliver()
        #expect(world.change(.remove(["bob"]), of: group, by: devices[0]) != nil)
        #expect(world.change(.add(["dave"]), of: group, by: devices[0]) != nil)
        world.deliver()
        devices[2].send("without bob", in: group)
        world.deliver()
        #expect(devices[1].texts(in: group) == ["for three"])
        #expect(devices[1].members(of: group).map { $0.contains("bob") } == false)
        #expect(dave.texts(in: group) == ["without bob"])
        #expect(devices[0].texts(in: group) == ["for three", "without bob"])
        // Bob's device refuses to send, and one that would not is not shown.
        #expect(devices[1].send("still here", in: group) == nil)
    }

    /// Bob does not know yet that he was removed; his text comes later than the version without him.
    @Test func aTextOfSomebodyWhoIsNoMemberAnyMoreIsNotShown() throws {
        let devices = try people("alice", "bob", "carol")
        let group = try group(devices)
        devices[1].send("warm up", in: group)
        world.deliver()
        #expect(devices[1].send("too late", in: group) != nil)
        #expect(world.change(.remove(["bob"]), of: group, by: devices[0]) != nil)
        // Alice's calls go first: bob's wait.
        let waiting = devices[1].attempts
        devices[1].attempts = []
        world.deliver()
        devices[1].attempts = waiting
        world.deliver()
        for device in [devices[0], devices[2]] {
            #expect(device.texts(in: group) == ["warm up"])
            let isReported = device.events.contains { event in
                if case .unreadable("bob", .notInRoom) = event { true } else { false }
            }
            #expect(isReported)
        }
    }

    /// A text comes before the version under which it was written was read, and the process ends in between.
    @Test func aTextThatOvertakesItsVersionWaitsForItAcrossARestart() throws {
        let devices = try people("alice", "bob")
        let group = try group(devices)
        devices[0].send("one", in: group)
        world.deliver()
        #expect(world.change(.rename("other"), of: group, by: devices[0]) != nil)
        devices[0].send("two", in: group)
        while let attempt = devices[0].nextCall() {
            if case .send(let bytes, _, let device, _) = attempt.call {
                world.deliver(bytes, to: [("bob", device)], from: "alice")
            }
            devices[0].end(attempt)
        }
        #expect(devices[1].texts(in: group) == ["one"])
        devices[1].events = []
        try devices[1].restart()
        let wanted = devices[1].machine.wantedGroups
        #expect(wanted.count == 1 && devices[1].texts(in: group) == ["one"])
        for reference in wanted { world.read(reference, by: devices[1]) }
        #expect(devices[1].texts(in: group) == ["one", "two"])
        try devices[1].restart()
        #expect(devices[1].machine.groups.first?.content.name == "other")
        #expect(devices[1].machine.wantedGroups.isEmpty)
        #expect(devices[1].texts(in: group) == ["one", "two"])
    }

    /// The tags of a message are as long as they may be, and longer when it is stored with its time. Otherwise a removed
    /// member could keep others from learning of that.
    @Test func theLongestTagsDoNotBlockAVersion() throws {
        let devices = try people("alice", "bob", "carol")
        let (alice, bob, carol) = (devices[0], devices[1], devices[2])
        let group = try group(devices)
        for device in [alice, carol] { device.send(device.user, in: group) }
        world.deliver()
        for (change, sender) in [(GroupChange.remove(["carol"]), carol), (.rename("other"), alice)] {
            let state = try #require(world.change(change, of: group, by: alice))
            bob.events = []
            var tags = "+pawl/group=\(Base64.text(state.reference.bytes));+pawl/to="
            tags += String(repeating: "YWFh", count: (1024 - tags.utf8.count) / 4)
            #expect((1021...1024).contains(tags.utf8.count))
            let bytes = try sender.seal(Body(tags: Array(tags.utf8), text: Array("long".utf8)), 1, for: bob)
            world.deliver(bytes, to: [("bob", bob.id)], from: sender.user)
            #expect(bob.machine.wantedGroups == [state.reference])
            try bob.restart()
            for reference in bob.machine.wantedGroups { world.read(reference, by: bob) }
            #expect(bob.machine.wantedGroups.isEmpty && bob.members(of: group) == ["alice", "bob"])
            let isReported = bob.events.contains { event in
                if case .unreadable("carol", .notInRoom) = event { true } else { false }
            }
            #expect(isReported == (sender === carol))
            world.deliver()
        }
        #expect(bob.texts(in: group).sorted() == ["alice", "carol", "long"])
    }

    @Test func aVersionThatTheServerDoesNotHaveIsGivenUp() throws {
        let devices = try people("alice", "bob")
        let blobs = world.blobs
        let change = GroupChange.create(name: "", metadata: [], members: ["bob"])
        let state = try #require(world.change(change, by: devices[0]))
        world.blobs = blobs
        devices[0].send("lost", in: state.id)
        world.deliver()
        #expect(devices[1].members(of: state.id) == nil && devices[1].machine.wantedGroups.isEmpty)
        let isReported = devices[1].events.contains { event in
            if case .groupRefused(_, .unavailable) = event { true } else { false }
        }
        #expect(isReported)
        try devices[1].restart()
        #expect(devices[1].machine.wantedGroups.isEmpty)
    }

    /// What is sealed under another key, is another group's or was altered is not taken.
    @Test func aServerCannotExchangeVersions() throws {
        let devices = try people("alice", "bob")
        let other = try #require(world.change(.create(name: "x", metadata: [], members: ["bob"]), by: devices[0]))
        world.deliver()
        let change = GroupChange.create(name: "", metadata: [], members: ["bob"])
        let state = try #require(world.change(change, by: devices[0]))
        let (id, blob) = (state.reference.blob, world.blobs[state.reference.blob] ?? [])
        let otherBlob = world.blobs[other.reference.blob]
        var altered = blob
        altered[20] ^= 1
        // Each is given up; the next message names the version again.
        for wrong in [otherBlob, altered, [], Array(blob.dropLast())] {
            world.blobs[id] = wrong
            devices[0].send("again", in: state.id)
            world.deliver()
            #expect(devices[1].members(of: state.id) == nil && devices[1].texts(in: state.id).isEmpty)
        }
        world.blobs[id] = blob
        devices[0].send("at last", in: state.id)
        world.deliver()
        #expect(devices[1].members(of: state.id) == ["alice", "bob"])
        #expect(devices[1].texts(in: state.id) == ["at last"])
    }

    @Test func rolesAreKept() throws {
        let devices = try people("alice", "bob", "carol", "dave")
        let group = try group(devices)
        let (alice, bob, carol) = (devices[0], devices[1], devices[2])
        for change in [
            GroupChange.rename("mine"), .add(["erin"]), .remove(["dave"]), .remove(["alice"]), .moderator("bob", true),
            .metadata([3]),
        ] {
            #expect(world.change(change, of: group, by: bob) == nil)
        }
        #expect(world.change(.moderator("bob", true), of: group, by: alice) != nil)
        #expect(world.change(.moderator("carol", true), of: group, by: alice) != nil)
        world.deliver()
        for change in [
            GroupChange.remove(["alice"]), .remove(["carol"]), .moderator("dave", true), .moderator("bob", false),
            .rename("team"), .add(["carol"]), .moderator("alice", false),
        ] {
            #expect(world.change(change, of: group, by: bob) == nil)
        }
        #expect(world.change(.rename("ours"), of: group, by: bob) != nil)
        #expect(world.change(.remove(["dave"]), of: group, by: bob) != nil)
        world.deliver()
        #expect(carol.members(of: group) == ["alice", "bob", "carol"])
        #expect(world.change(.remove(["carol"]), of: group, by: carol) != nil)
        world.deliver()
        #expect(alice.members(of: group) == ["alice", "bob"])
        #expect(carol.send("gone", in: group) == nil)
        #expect(carol.machine.groups.count == 1)
    }

    /// Bob's device makes a version under the name of the owner, and one that it may not make.
    @Test(arguments: [0, 1]) func aForgedVersionIsRefused(_ signer: Int) throws {
        let devices = try people("alice", "bob", "carol")
        let group = try group(devices)
        devices[1].send("warm up", in: group)
        world.deliver()
        let known = try #require(devices[1].machine.groups.first)
        let bob = devices[1].machine.own.device
        let content = GroupContent(
            name: "bob's", members: [GroupMember(.services("bob"), .owner), GroupMember(.services("carol"))])
        // By its role, it may not.
        let notAllowed = known.chain.adding(content, random: 1, by: .services("bob"), bob.id, bob.identity)
        #expect(notAllowed == nil)
        let mine = GroupContent(
            name: "bob's", members: known.content.members.filter { $0.account != .services("carol") })
        // Signed by bob's device, under alice's name: with her device, or with his.
        let alices = known.chain.adding(mine, random: 1, by: .services("alice"), devices[signer].id, bob.identity)
        let forged = try #require(alices)
        let key = [UInt8](repeating: 5, count: 32)
        var random = SeededGenerator(seed: 9)
        let blob = try GroupReference.seal(forged, key: key, random: &random)
        world.blobs["forged"] = blob
        devices[1].perform {
            .publishedGroup(ticket: $0, GroupProposal(chain: forged, key: key, blob: blob), blob: "forged")
        }
        world.deliver()
        for victim in [devices[0], devices[2]] {
            #expect(victim.members(of: group) == ["alice", "bob", "carol"])
            let isRefused = victim.events.contains { event in
                if case .groupRefused(_, .notAuthentic) = event { true } else { false }
            }
            #expect(isRefused)
        }
    }

    @Test func limitsHold() throws {
        let alice = try world.person("alice")
        let many = (0..<32).map { "person \($0)" }
        for change in [
            GroupChange.create(name: "", metadata: [], members: many),
            .create(name: String(repeating: "x", count: 129), metadata: [], members: ["bob"]),
            .create(name: "", metadata: [UInt8](repeating: 0, count: 1025), members: ["bob"]),
            .create(name: "", metadata: [], members: [String(repeating: "x", count: 256)]),
            .create(name: "", metadata: [], members: [""]),
        ] {
            let reply = alice.perform { .proposeGroup(ticket: $0, change, of: nil) }
            guard case .refused(.groupLimit)? = reply else { return fail("\(String(describing: reply))") }
        }
        let change = GroupChange.create(name: "", metadata: [], members: Array(many.dropLast()))
        let state = try #require(world.change(change, by: alice))
        #expect(world.change(.add(["one more"]), of: state.id, by: alice) == nil)
        // The versions of a group are bounded as well.
        var count = 1
        while world.change(.rename("name \(count)"), of: state.id, by: alice) != nil { count += 1 }
        #expect((50...GroupChain.versionLimit).contains(count))
        #expect(alice.machine.groups.first?.chain.bytes.count ?? .max <= GroupChain.maximumLength)
    }

    /// Two moderators change the group at the same time: all come to the same version.
    @Test(arguments: [false, true]) func aForkIsDecidedInTheSameWayByAll(_ isOwner: Bool) throws {
        let devices = try people("alice", "bob", "carol", "dave")
        let group = try group(devices)
        world.change(.moderator("bob", true), of: group, by: devices[0])
        world.change(.moderator("carol", true), of: group, by: devices[0])
        world.deliver()
        let other = isOwner ? devices[0] : devices[2]
        #expect(world.change(.rename("by bob"), of: group, by: devices[1]) != nil)
        #expect(world.change(.rename("by the other"), of: group, by: other) != nil)
        devices[1].send("from bob", in: group)
        world.deliver()
        let names = Set(devices.compactMap { $0.machine.groups.first?.content.name })
        #expect(names.count == 1)
        if isOwner { #expect(names == ["by the other"]) }
        for device in devices { #expect(device.texts(in: group) == ["from bob"]) }
        // And they go on.
        #expect(world.change(.rename("later"), of: group, by: devices[2]) != nil)
        world.deliver()
        for device in devices { #expect(device.machine.groups.first?.content.name == "later") }
    }

    /// A device of the owner makes a version and is revoked before the owner gets it: the owner's version counts, whatever
    /// the digests are.
    @Test(arguments: 1...6) func aVersionOfARevokedDeviceOfTheOwnerDoesNotDivide(_ seed: UInt64) throws {
        let world = World(seed: seed * 100)
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let tablet = try world.device(of: "alice")
        try world.adopt("alice", by: alice)
        let change = GroupChange.create(name: "team", metadata: [], members: ["bob"])
        let group = try #require(world.change(change, by: alice)).id
        world.deliver()
        #expect(world.change(.rename("by the tablet"), of: group, by: tablet) != nil)
        for attempt in tablet.attempts {
            guard case .send(let bytes, "bob", let device, _) = attempt.call else { continue }
            world.deliver(bytes, to: [("bob", device)], from: "alice")
        }
        tablet.attempts = []
        world.deliver()
        #expect(bob.machine.groups.first?.content.name == "by the tablet")
        alice.perform { .revoke(ticket: $0, tablet.id) }
        #expect(world.change(.rename("by alice"), of: group, by: alice) != nil)
        world.deliver()
        #expect(bob.machine.groups.first?.content.name == "by alice")
    }

    /// A thief signs with the key of the owner's device after it was removed: one more version; a second one by a moderator
    /// that the first has appointed; a version beside one of another moderator.
    @Test(arguments: 0...2) func aStolenDeviceOfTheOwnerChangesNothingAfterItsRemoval(_ attack: Int) throws {
        let devices = try people("alice", "bob", "mallory")
        let (alice, bob, mallory) = (devices[0], devices[1], devices[2])
        let tablet = try world.device(of: "alice")
        try world.adopt("alice", by: alice)
        let group = try group([alice, bob])
        world.change(.moderator("bob", true), of: group, by: alice)
        mallory.send("hello", to: "bob")
        world.deliver()
        alice.perform { .revoke(ticket: $0, tablet.id) }
        world.deliver()
        if attack == 2 { world.change(.rename("by bob"), of: group, by: bob) }
        world.deliver()
        let stolen = try #require(tablet.machine.groups.first)
        var content = stolen.content
        content = GroupContent(
            name: content.name, members: content.members + [GroupMember(.services("mallory"), .moderator)])
        let longer = stolen.chain.adding(
            content, random: 1, by: .services("alice"), tablet.id, tablet.machine.own.device.identity)
        var forged = try #require(longer)
        if attack == 1 {
            content.name = "mallory's"
            let longer = forged.adding(
                content, random: 2, by: .services("mallory"), mallory.id, mallory.machine.own.device.identity)
            forged = try #require(longer)
        }
        let key = [UInt8](repeating: 5, count: 32)
        var random = SeededGenerator(seed: 9)
        world.blobs["forged"] = try GroupReference.seal(forged, key: key, random: &random)
        var notice = ChatContent(.group, writtenAt: 1)
        notice.group = try GroupReference(group.bytes + forged.last.digest + key + [6] + Array("forged".utf8))
        let bytes = try mallory.seal(notice.body, 1, for: bob)
        world.deliver(bytes, to: [("bob", bob.id)], from: "mallory")
        world.deliver()
        #expect(bob.members(of: group) == ["alice", "bob"])
        let refusals = bob.events.compactMap { event -> GroupRefusal? in
            if case .groupRefused(_, let refusal) = event { refusal } else { nil }
        }
        #expect(refusals == [attack == 2 ? .undecidedFork : .fork])
        // And the group goes on.
        #expect(world.change(.rename("later"), of: group, by: alice) != nil)
        world.deliver()
        #expect(bob.machine.groups.first?.content.name == "later" && bob.members(of: group) == ["alice", "bob"])
    }

    /// Carol learns that a device was removed before she gets the version that it has made before that.
    @Test func aLateVersionOfARemovedDeviceCountsWhenTheOwnerGoesOn() throws {
        let devices = try people("alice", "bob", "carol")
        let (alice, bob, carol) = (devices[0], devices[1], devices[2])
        let tablet = try world.device(of: "alice")
        try world.adopt("alice", by: alice)
        let group = try group(devices)
        tablet.send("warm up", in: group)
        world.deliver()
        #expect(alice.machine.unconfirmedGroups(isNow: true).isEmpty)
        #expect(world.change(.rename("by the tablet"), of: group, by: tablet) != nil)
        while let attempt = tablet.nextCall() {
            if case .send(let bytes, let user, let device, _) = attempt.call, user != "carol" {
                world.deliver(bytes, to: [(user, device)], from: "alice")
            }
            tablet.end(attempt)
        }
        world.deliver()
        for device in [alice, bob] { #expect(device.machine.groups.first?.content.name == "by the tablet") }
        alice.perform { .revoke(ticket: $0, tablet.id) }
        world.deliver()
        bob.send("from bob", in: group)
        world.deliver()
        #expect(carol.machine.groups.first?.content.name == "team")
        #expect(carol.texts(in: group) == ["warm up", "from bob"])
        #expect(alice.machine.unconfirmedGroups(isNow: false) == [group])
        #expect(bob.machine.unconfirmedGroups(isNow: true).isEmpty)
        // Only one that might have made it makes it count.
        #expect(world.change(.confirm, of: group, by: bob) == nil)
        #expect(world.change(.confirm, of: group, by: alice) != nil)
        world.deliver()
        for device in devices { #expect(device.machine.groups.first?.content.name == "by the tablet") }
        #expect(alice.machine.unconfirmedGroups(isNow: false).isEmpty)
        #expect(alice.machine.unconfirmedGroups(isNow: true) == [group])
    }

    /// Carol does not know the owner's tablet yet when its version comes. It counts for her as for the others.
    @Test func aVersionOfADeviceThatIsNotKnownYetDecidesAFork() throws {
        let devices = try people("alice", "bob", "carol")
        let (alice, bob, carol) = (devices[0], devices[1], devices[2])
        let group = try group(devices)
        world.change(.moderator("bob", true), of: group, by: alice)
        world.deliver()
        bob.send("warm up", in: group)
        world.deliver()
        let tablet = try world.device(of: "alice")
        try world.adopt("alice", by: alice)
        #expect(world.change(.rename("by bob"), of: group, by: bob) != nil)
        #expect(world.change(.rename("by the tablet"), of: group, by: tablet) != nil)
        // What the tablet sends to carol is lost.
        var isMoving = true
        while isMoving {
            isMoving = false
            for attempt in tablet.attempts {
                guard case .send(_, "carol", _, _) = attempt.call else { continue }
                tablet.attempts.removeAll { $0.id == attempt.id }
                tablet.end(attempt)
                isMoving = true
            }
            if world.step() { isMoving = true }
        }
        #expect(bob.machine.groups.first?.content.name == "by the tablet")
        #expect(carol.machine.groups.first?.content.name == "by bob")
        bob.send("from bob", in: group)
        world.deliver()
        #expect(carol.machine.groups.first?.content.name == "by the tablet")
        #expect(carol.texts(in: group) == ["warm up", "from bob"])
    }

    /// Of two branches by devices of the owner, the one with more versions of the owner counts on all devices.
    @Test(arguments: 1...6) func theLongerBranchOfTheOwnerCounts(_ seed: UInt64) throws {
        let world = World(seed: seed * 100)
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let tablet = try world.device(of: "alice")
        try world.adopt("alice", by: alice)
        let change = GroupChange.create(name: "team", metadata: [], members: ["bob"])
        let group = try #require(world.change(change, by: alice)).id
        world.deliver()
        world.change(.rename("one of the tablet"), of: group, by: tablet)
        world.change(.rename("one of alice"), of: group, by: alice)
        world.change(.rename("two of alice"), of: group, by: alice)
        world.deliver()
        for device in [alice, bob, tablet] { #expect(device.machine.groups.first?.content.name == "two of alice") }
    }

    /// A text that was only for own devices, which are removed meanwhile, has failed for nobody.
    @Test(arguments: [false, true]) func aTextForNobodyElseDoesNotFail(_ isWaiting: Bool) throws {
        let devices = try people("alice", "bob")
        let phone = try world.device(of: "alice")
        try world.adopt("alice", by: devices[0])
        let members = isWaiting ? ["nobody"] : ["bob"]
        let change = GroupChange.create(name: "", metadata: [], members: members)
        let group = try #require(world.change(change, by: devices[0])).id
        if !isWaiting { world.change(.remove(members), of: group, by: devices[0]) }
        world.deliver()
        devices[0].send("one", in: group)
        let call = try #require(devices[0].nextCall())
        guard case .send(_, "alice", phone.id, _) = call.call else { return fail("\(call.call)") }
        devices[0].end(call, .unknownRecipient)
        #expect(devices[0].history(in: group).map(\.state) == [.sent])
    }

    /// Long branches stay apart until the owner makes one more version.
    @Test func longBranchesAreDecidedByTheOwner() throws {
        let devices = try people("alice", "bob", "carol", "dave")
        let group = try group(devices)
        world.change(.moderator("bob", true), of: group, by: devices[0])
        world.change(.moderator("carol", true), of: group, by: devices[0])
        world.deliver()
        for (device, name) in [(devices[1], "bob"), (devices[2], "carol")] {
            world.change(.rename("one \(name)"), of: group, by: device)
            world.change(.rename("two \(name)"), of: group, by: device)
        }
        world.deliver()
        let names = devices.compactMap { $0.machine.groups.first?.content.name }
        #expect(names[1] == "two bob" && names[2] == "two carol")
        #expect(world.change(.rename("by the owner"), of: group, by: devices[0]) != nil)
        world.deliver()
        for device in devices { #expect(device.machine.groups.first?.content.name == "by the owner") }
    }

    @Test func editsDeletionsReactionsReceiptsAndTimersWorkInGroups() throws {
        let devices = try people("alice", "bob", "carol")
        let (alice, bob, carol) = (devices[0], devices[1], devices[2])
        let group = try group(devices)
        let first = try #require(alice.send("helo", in: group))
        let second = try #require(bob.send("secret", in: group))
        world.deliver()
        alice.perform { .send(ticket: $0, SendJob(in: .group(group), .edit(first.reference), text: "hello")) }
        bob.perform { .send(ticket: $0, SendJob(in: .group(group), .delete(second.reference))) }
        for (device, characters) in [(bob, "!"), (carol, "?")] {
            device.perform {
                .send(ticket: $0, SendJob(in: .group(group), .react(first.reference, with: characters)))
            }
        }
        world.deliver()
        for device in devices {
            let messages = device.history(in: group)
            #expect(messages.map(\.text).sorted() == ["", "hello"])
            let reactions = messages.first { $0.text == "hello" }?.reactions ?? []
            #expect(Set(reactions.map(\.characters)) == ["!", "?"])
            #expect(reactions.count { $0.isOwn } == (device === alice ? 0 : 1))
        }
        // Only the author changes a message.
        let reply = carol.perform {
            .send(ticket: $0, SendJob(in: .group(group), .edit(first.reference), text: "x"))
        }
        guard case .refused(.unknownMessage)? = reply else { return fail("\(String(describing: reply))") }
        // It counts as read when all have read it.
        #expect(alice.history(in: group).first { $0.isOwn }?.state == .received)
        bob.perform { .markRead(ticket: $0, .group(group)) }
        world.deliver()
        #expect(alice.history(in: group).first { $0.isOwn }?.state == .received)
        #expect(alice.history(in: group).first { $0.isOwn }?.receipts[.services("bob")] == .read)
        carol.perform { .markRead(ticket: $0, .group(group)) }
        world.deliver()
        #expect(alice.history(in: group).first { $0.isOwn }?.state == .read)
        alice.perform { .setTimer(ticket: $0, .group(group), 60) }
        alice.send("burn this", in: group)
        world.deliver()
        for device in devices {
            device.now.wall += 61_000
            device.run([.tick])
            #expect(device.texts(in: group).last == "")
        }
    }

    /// Sealed receipts, several recipients of one envelope.
    @Test func groupsWorkWithSeveralRecipientsAndSealedReceipts() throws {
        world.hasReceipts = false
        let devices = try people("alice", "bob", "carol")
        for device in devices { device.run([.sendsSeveral(true)]) }
        let group = try group(devices)
        devices[0].send("hello", in: group)
        let several = devices[0].attempts.compactMap { attempt -> Int? in
            if case .sendSeveral(_, let recipients, _) = attempt.call { recipients.count } else { nil }
        }
        #expect(several == [2])
        world.deliver()
        for device in devices { #expect(device.texts(in: group) == ["hello"]) }
        #expect(devices[0].history(in: group).last?.state == .received)
    }

    /// A member without keys gets what was written meanwhile, in its order, as soon as there are keys.
    @Test func messagesWaitForAMemberWithoutKeys() throws {
        let devices = try people("alice", "bob")
        let change = GroupChange.create(name: "team", metadata: [], members: ["bob", "zoe"])
        let group = try #require(world.change(change, by: devices[0])).id
        world.deliver()
        let first = try #require(devices[0].send("one", in: group))
        devices[0].send("two", in: group)
        world.deliver()
        #expect(devices[1].texts(in: group) == ["one", "two"])
        devices[0].perform { .send(ticket: $0, SendJob(in: .group(group), .edit(first.reference), text: "1")) }
        try devices[0].restart()
        #expect(devices[0].machine.waitingUsers == ["zoe"])
        let zoe = try world.person("zoe")
        let config = world.configs["zoe"]
        devices[0].perform { .keys(ticket: $0, config, of: "zoe") }
        world.deliver()
        #expect(zoe.texts(in: group) == ["1", "two"])
        #expect(devices[1].texts(in: group) == ["1", "two"])
        #expect(devices[0].machine.waitingUsers.isEmpty)
    }

    /// A text that waits for a member is deleted, or the member is removed, before there are keys.
    @Test(arguments: [false, true]) func aTextThatNobodyGetsDoesNotWait(_ isDeleted: Bool) throws {
        let alice = try world.person("alice")
        let change = GroupChange.create(name: "team", metadata: [], members: ["zoe"])
        let group = try #require(world.change(change, by: alice)).id
        let message = try #require(alice.send("one", in: group))
        #expect(message.state == .waiting)
        if isDeleted {
            alice.perform { .send(ticket: $0, SendJob(in: .group(group), .delete(message.reference))) }
        } else {
            #expect(world.change(.remove(["zoe"]), of: group, by: alice) != nil)
        }
        let zoe = try world.person("zoe")
        let config = world.configs["zoe"]
        alice.perform { .keys(ticket: $0, config, of: "zoe") }
        world.deliver()
        #expect(alice.history(in: group).map(\.state) == [.sent])
        #expect(zoe.texts(in: group).isEmpty)
    }

    /// An edit that no member can get is refused, and their keys are read for the next one.
    @Test func aRefusedEditAsksForTheKeysOfMembers() throws {
        let devices = try people("alice", "bob")
        let group = try group(devices)
        let message = try #require(devices[0].send("one", in: group))
        world.deliver()
        let config = try #require(World.published(by: try World(seed: 99).person("bob")))
        devices[0].perform { .keys(ticket: $0, config, of: "bob") }
        devices[0].events = []
        let reply = devices[0].perform {
            .send(ticket: $0, SendJob(in: .group(group), .edit(message.reference), text: "1"))
        }
        guard case .refused(.keysMissing)? = reply else { return fail("\(String(describing: reply))") }
        #expect(devices[0].keysWanted == ["bob"])
        #expect(devices[0].texts(in: group) == ["one"] && devices[0].attempts.isEmpty)
    }

    /// Several devices of members: copies, and a device that is added later.
    @Test func otherDevicesAndAddedDevicesTakePart() throws {
        let devices = try people("alice", "bob")
        let group = try group(devices)
        devices[0].send("before", in: group)
        world.deliver()
        let phone = try world.device(of: "alice")
        try world.adopt("alice", by: devices[0])
        #expect(phone.members(of: group) == ["alice", "bob"])
        devices[1].send("to both", in: group)
        world.deliver()
        phone.send("from the phone", in: group)
        world.deliver()
        #expect(phone.texts(in: group) == ["before", "to both", "from the phone"])
        #expect(devices[0].texts(in: group) == ["before", "to both", "from the phone"])
        #expect(devices[0].history(in: group).map(\.isOwn) == [true, false, true])
        #expect(devices[1].texts(in: group) == ["before", "to both", "from the phone"])
        // The phone may change the group as its owner.
        #expect(world.change(.rename("phone"), of: group, by: phone) != nil)
        world.deliver()
        for device in [devices[0], devices[1]] { #expect(device.machine.groups.first?.content.name == "phone") }
    }

    /// Carol's reaction to a text of bob's new device comes to alice before anything of that device.
    @Test func aReactionWaitsForATextOfAnUnknownDevice() throws {
        let devices = try people("alice", "bob", "carol")
        let (alice, bob, carol) = (devices[0], devices[1], devices[2])
        let group = try group(devices)
        let phone = try world.device(of: "bob")
        try world.adopt("bob", by: bob)
        let text = try #require(phone.send("from the phone", in: group))
        // What is for alice is kept back, and the list of bob with it.
        var kept: [(bytes: [UInt8], sender: World.Device)] = []
        func deliverToOthers() {
            var isMoving = true
            while isMoving {
                isMoving = false
                for device in [bob, phone, carol] {
                    for attempt in device.attempts {
                        guard case .send(let bytes, "alice", _, _) = attempt.call else { continue }
                        device.attempts.removeAll { $0.id == attempt.id }
                        kept.append((bytes, device))
                        device.end(attempt)
                        isMoving = true
                    }
                }
                if world.step() { isMoving = true }
            }
        }
        deliverToOthers()
        #expect(carol.texts(in: group) == ["from the phone"])
        let react = SendJob(in: .group(group), .react(text.reference, with: "\u{1F44D}"))
        guard case .accepted? = carol.perform({ .send(ticket: $0, react) }) else { return fail("no reaction") }
        deliverToOthers()
        for (bytes, sender) in kept where sender === carol {
            world.deliver(bytes, to: [("alice", alice.id)], from: "carol")
        }
        #expect(alice.texts(in: group).isEmpty)
        try alice.restart()
        for (bytes, sender) in kept where sender !== carol {
            world.deliver(bytes, to: [("alice", alice.id)], from: sender.user)
        }
        world.deliver()
        #expect(alice.texts(in: group) == ["from the phone"])
        let message = try #require(alice.history(in: group).first)
        #expect(message.author == .services("bob") && message.reactions.map(\.author) == [.services("carol")])
    }

    @Test func aFailedCommitLeavesNothing() throws {
        let devices = try people("alice", "bob")
        let group = try group(devices)
        devices[0].store.failNextCommit()
        #expect(devices[0].send("lost", in: group) == nil)
        #expect(devices[0].attempts.isEmpty)
        try devices[0].restart()
        devices[0].send("kept", in: group)
        world.deliver()
        for device in devices { #expect(device.texts(in: group) == ["kept"]) }
    }

    /// A member who was away for more versions than are read at once loses nothing that was written under them.
    @Test func textsUnderManyVersionsWaitForTheirTurn() throws {
        let devices = try people("alice", "bob")
        let group = try group(devices)
        let count = MessengerParticipants.wantedVersionLimit * 2 + 3
        for number in 0..<count {
            #expect(world.change(.rename("\(number)"), of: group, by: devices[0]) != nil)
            devices[0].send("\(number)", in: group)
        }
        // All come before bob has read a version.
        while let attempt = devices[0].nextCall() {
            if case .send(let bytes, _, let device, _) = attempt.call {
                world.deliver(bytes, to: [("bob", device)], from: "alice")
            }
            devices[0].end(attempt)
        }
        #expect(devices[1].machine.wantedGroups.count == MessengerParticipants.wantedVersionLimit)
        #expect(devices[1].texts(in: group).isEmpty)
        // The server has lost the first of them.
        let lost = try #require(devices[1].machine.wantedGroups.first)
        world.blobs[lost.blob] = nil
        try devices[1].restart()
        for reference in devices[1].machine.wantedGroups { world.read(reference, by: devices[1]) }
        world.deliver()
        let expected = (0..<count).map { "\($0)" }
        #expect(Array(devices[1].texts(in: group).suffix(count - 1)) == Array(expected.dropFirst()))
        #expect(devices[1].machine.groups.first?.content.name == expected.last)
        #expect(devices[1].machine.wantedGroups.isEmpty)
    }

    /// Strangers name blobs that do not exist. One of them leaves room for the versions that others name.
    @Test func versionsThatAreNamedAreBounded() throws {
        let devices = try people("alice", "bob", "carol")
        let bob = devices[1]
        let (limit, senderLimit) = (MessengerParticipants.wantedGroupLimit, MessengerParticipants.wantedSenderLimit)
        try name(senderLimit + 10, by: devices[0], to: bob)
        #expect(bob.machine.wantedGroups.count == senderLimit)
        // After a restart it is known who has named them.
        try bob.restart()
        try name(1, by: devices[0], to: bob)
        #expect(bob.machine.wantedGroups.count == senderLimit)
        try name(1, by: devices[2], to: bob)
        #expect(bob.machine.wantedGroups.count == senderLimit + 1)
        try name(limit, by: devices[2], to: bob)
        #expect(bob.machine.wantedGroups.count == limit)
        // What was given up makes room.
        for reference in bob.machine.wantedGroups.prefix(senderLimit) {
            bob.perform { .readGroup(ticket: $0, reference, nil, hasKeys: false) }
        }
        #expect(bob.machine.wantedGroups.count == limit - senderLimit)
        try name(1, by: devices[0], to: bob)
        #expect(bob.machine.wantedGroups.count == limit - senderLimit + 1)
    }

    /// The owner of many groups makes a version in each of them at once, as after a device was removed.
    @Test func versionsOfKnownGroupsAreReadHoweverManyThereAre() throws {
        let devices = try people("alice", "bob")
        let (alice, bob) = (devices[0], devices[1])
        let groups = try (0..<MessengerParticipants.wantedSenderLimit + 3).map { try group(devices, "\($0)") }
        for group in groups { #expect(world.change(.confirm, of: group, by: alice) != nil) }
        // All come before bob has read a version.
        while let attempt = alice.nextCall() {
            if case .send(let bytes, _, let device, _) = attempt.call {
                world.deliver(bytes, to: [("bob", device)], from: "alice")
            }
            alice.end(attempt)
        }
        #expect(bob.machine.wantedGroups.count == groups.count)
        world.deliver()
        #expect(bob.machine.groups.map(\.chain.versions.count) == groups.map { _ in 2 })
        #expect(bob.machine.wantedGroups.isEmpty)
    }

    /// The key of a reference makes the row of a wanted version look like the form without a sender.
    @Test func aWantedVersionIsReadAsItWasWritten() throws {
        let devices = try people("alice", "bob")
        let (alice, bob) = (devices[0], devices[1])
        let group = try group(devices)
        alice.send("warm up", in: group)
        world.deliver()
        let known = try #require(alice.machine.groups.first?.reference)
        var bytes = known.bytes
        // An unknown version; the key begins at 48.
        bytes[16] ^= 1
        bytes[48 + 30] = UInt8(2 + known.blob.utf8.count + "alice".utf8.count)
        bytes[48 + 31] = 0x61
        let reference = try GroupReference(bytes)
        let tags = "+pawl/group=\(Base64.text(bytes))"
        let sealed = try alice.seal(Body(tags: Array(tags.utf8), text: Array("one".utf8)), 1, for: bob)
        world.deliver(sealed, to: [("bob", bob.id)], from: "alice")
        #expect(bob.machine.wantedGroups == [reference])
        try bob.restart()
        #expect(bob.machine.wantedGroups == [reference])
    }

    /// Alice has named as many versions as she may, and her text in a group is before carol's, who has room.
    @Test func aSenderWithoutRoomDoesNotStopOthers() throws {
        let devices = try people("alice", "bob", "carol")
        let (alice, bob, carol) = (devices[0], devices[1], devices[2])
        for device in [alice, carol] { device.send("warm up", to: "bob") }
        world.deliver()
        func reference(_ group: UInt8, _ version: UInt8) throws -> GroupReference {
            let digest = [UInt8](repeating: version, count: 32)
            return try GroupReference([UInt8](repeating: group, count: 16) + digest + digest + [1, 0x62])
        }
        var number: UInt64 = 0
        func name(_ group: UInt8, _ version: UInt8, by sender: World.Device) throws {
            number += 1
            let tags = "+pawl/group=\(Base64.text(try reference(group, version).bytes))"
            let body = Body(tags: Array(tags.utf8), text: Array("one".utf8))
            world.deliver(try sender.seal(body, number, for: bob), to: [("bob", bob.id)], from: sender.user)
        }
        let limit = UInt8(MessengerParticipants.wantedSenderLimit)
        for group in 0..<limit { try name(group, 1, by: carol) }
        for group in 100..<100 + limit { try name(group, 1, by: alice) }
        try name(0, 2, by: alice)
        try name(0, 3, by: carol)
        #expect(bob.machine.wantedGroups.count == 2 * Int(limit))
        let first = try reference(0, 1)
        bob.perform { .readGroup(ticket: $0, first, nil, hasKeys: false) }
        let wanted = Set(bob.machine.wantedGroups)
        #expect(wanted.contains(try reference(0, 3)))
        #expect(!wanted.contains(try reference(0, 2)))
    }

    /// Sends a person the first versions of groups, which they do not read.
    private func name(_ count: Int, by sender: World.Device, to reader: World.Device) throws {
        for number in 0..<count {
            let change = GroupChange.create(name: "\(number)", metadata: [], members: [reader.user])
            #expect(world.change(change, by: sender) != nil)
        }
        var isOpen = true
        while isOpen {
            isOpen = false
            while let attempt = sender.nextCall() {
                isOpen = true
                if case .send(let bytes, _, let device, _) = attempt.call {
                    world.deliver(bytes, to: [(reader.user, device)], from: sender.user)
                }
                sender.end(attempt)
            }
            let config = world.configs[reader.user]
            if sender.machine.waitingUsers == [reader.user] {
                isOpen = true
                sender.perform { .keys(ticket: $0, config, of: reader.user) }
            }
        }
    }
}

/// The form of groups and references: whole, cut, too long, altered.
@Suite struct GroupFormTests {
    private func state() throws -> (World, GroupState) {
        let world = World(seed: 60)
        let alice = try world.person("alice")
        _ = try world.person("bob")
        let change = GroupChange.create(name: "zo\u{EB}", metadata: [9], members: ["bob", "carol"])
        let first = try #require(world.change(change, by: alice))
        world.change(.moderator("bob", true), of: first.id, by: alice)
        return (world, try #require(world.change(.rename("other"), of: first.id, by: alice)))
    }

    @Test func groupsAreReadAsTheyWereWrittenAndNoOtherIs() throws {
        let (_, state) = try state()
        let bytes = state.chain.bytes
        #expect(try GroupChain(bytes) == state.chain && state.chain.versions.count == 3)
        for length in 0..<bytes.count {
            #expect(throws: EnvelopeError.self) { try GroupChain(Array(bytes.prefix(length))) }
        }
        #expect(throws: EnvelopeError.malformed) { try GroupChain(bytes + [0]) }
        #expect(throws: EnvelopeError.malformed) {
            try GroupChain(bytes + [UInt8](repeating: 0, count: GroupChain.maximumLength))
        }
        #expect(throws: EnvelopeError.unsupportedVersion(7)) { try GroupChain([7] + bytes.dropFirst()) }
        #expect(throws: EnvelopeError.malformed) { try GroupChain([1, 0]) }
        #expect(throws: EnvelopeError.malformed) { try GroupChain([1, 201] + bytes.dropFirst(2)) }
        // An altered byte is refused, or changes the digest.
        var random = SeededGenerator(seed: 61)
        for _ in 0..<2000 {
            var altered = bytes
            altered[Int.random(in: 2..<bytes.count, using: &random)] ^= UInt8.random(in: 1...255, using: &random)
            guard let read = try? GroupChain(altered) else { continue }
            #expect(read.bytes == altered && read.last.digest != state.chain.last.digest)
        }
        for _ in 0..<2000 {
            let length = Int.random(in: 0..<200, using: &random)
            let noise = (0..<length).map { _ in UInt8.random(in: 0...255, using: &random) }
            _ = try? GroupChain([1, 1] + noise)
        }
    }

    @Test func referencesAreReadAsTheyWereWritten() throws {
        let (_, state) = try state()
        let bytes = state.reference.bytes
        #expect(try GroupReference(bytes) == state.reference)
        for length in 0..<bytes.count {
            #expect(throws: EnvelopeError.self) { try GroupReference(Array(bytes.prefix(length))) }
        }
        #expect(throws: EnvelopeError.malformed) { try GroupReference(bytes + [0]) }
        var long = Array(bytes.prefix(80))
        long += [129] + [UInt8](repeating: 0x61, count: 129)
        #expect(throws: EnvelopeError.malformed) { try GroupReference(long) }
        for (act, text) in [
            (ChatContent.Act.text, "hi"), (.group, ""),
            (.delete(MessageReference(device: DeviceID(1), message: MessageID(2))), ""),
        ] {
            var content = ChatContent(act, text: text, writtenAt: 1, timer: 5)
            content.group = state.reference
            #expect(try ChatContent(content.body, now: 2) == content)
            #expect(try ChatContent(Body(content.body.bytes(paddedTo: 1024)), now: 2) == content)
        }
        // A sidecar's message of several lines is a text with breaks.
        let lines = ["one ", "more", "", "two"].map { Body.Line(text: Array($0.utf8), continues: $0 == "more") }
        let content = ChatContent(.text, text: "one more\n\ntwo", writtenAt: 2)
        #expect(try ChatContent(Body(lines: lines), now: 2) == content)
        // Receipts and signals belong to people.
        var receipt = ChatContent(.read([MessageID(1)]), writtenAt: 1)
        receipt.group = state.reference
        #expect(throws: EnvelopeError.malformed) { try ChatContent(receipt.body, now: 2) }
        #expect(
            GroupID(state.id.text) == state.id && GroupID("0") == nil
                && GroupID(state.id.text.uppercased() + "g") == nil)
        #expect(state.id.chat.group == state.id && AccountID.services("alice").group == nil)
    }

    @Test func rowsOfGroupMessagesAreReadAsTheyWereWritten() throws {
        let (_, state) = try state()
        let reference = MessageReference(device: DeviceID(0xAB), message: MessageID(0xCD))
        var message = ChatMessage(
            chat: state.id.chat, sequence: 7, reference: reference, isOwn: false, text: "hi", writtenAt: 1, storedAt: 2,
            state: .received, protection: .device)
        message.author = .services("bob")
        message.receipts = [.services("carol"): .read, .services("dave"): .received]
        message.reactions = [
            ChatReaction(isOwn: true, characters: "!"),
            ChatReaction(isOwn: false, characters: "?", author: .services("carol")),
        ]
        let bytes = message.bytes
        #expect(try ChatMessage(chat: message.chat, sequence: 7, bytes: bytes) == message)
        for length in 0..<bytes.count {
            #expect(throws: EnvelopeError.self) {
                try ChatMessage(chat: message.chat, sequence: 7, bytes: Array(bytes.prefix(length)))
            }
        }
        #expect(throws: EnvelopeError.unsupportedVersion(2)) {
            try ChatMessage(chat: .services("bob"), sequence: 7, bytes: bytes)
        }
    }
}
