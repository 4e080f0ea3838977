import ArgumentParser
import DoubleRatchet
import OMEMO

/// Our OMEMO profiles, which are plain Double Ratchets, in a process of their own.
struct OMEMOLoad: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "omemo-load", abstract: "Measures a profile of OMEMO and prints its figures.")

    private static let setups = 40
    private static let turns = 200
    private static let messages = 1000

    @Flag(help: "Of XEP-0384 0.9; without it `eu.siacs.conversations.axolotl`.") var omemo2 = false

    func run() throws {
        let profile: OMEMOProfile = self.omemo2 ? .omemo2 : .axolotl
        var random = SystemRandomSource()
        let text = [UInt8](repeating: 0, count: 256)
        let alice = IdentityKeyPair(random: &random)
        let bob = IdentityKeyPair(random: &random)
        let signed = OMEMOSignedPreKey(id: 1, identity: bob, profile: profile, random: &random)
        let once = OneTimePreKey(id: 1, random: &random)
        let bundle = OMEMOBundle(
            identity: bob.omemoKey(in: profile), signedPreKey: signed.publicKey, preKeys: [once.publicKey])
        var sealed: [UInt8] = []
        sealed.reserveCapacity(Self.messages * 1024)
        var opened: [UInt8] = []
        opened.reserveCapacity(4096)

        func begin() throws -> OMEMOPair {
            sealed.removeAll(keepingCapacity: true)
            opened.removeAll(keepingCapacity: true)
            var ours = try OMEMOSession.initiate(identity: alice, with: bundle, expecting: nil, random: &random)
            _ = try ours.encrypt(text.span, random: &random, into: &sealed)
            let theirs = try OMEMOSession.respond(
                identity: bob, signedPreKey: signed, preKey: once, message: sealed.span, profile: profile,
                expecting: nil, plaintext: &opened)
            return OMEMOPair(ours: ours, theirs: theirs)
        }
        try Figure.measure("setup", Self.setups) {
            for _ in 0..<Self.setups { _ = try begin() }
        }
        var pair = try begin()
        try OMEMOPair.send(text, from: &pair.theirs, to: &pair.ours, &random, &sealed, &opened)
        try Figure.measure("ping-pong", 2 * Self.turns) {
            for _ in 0..<Self.turns {
                try OMEMOPair.send(text, from: &pair.ours, to: &pair.theirs, &random, &sealed, &opened)
                try OMEMOPair.send(text, from: &pair.theirs, to: &pair.ours, &random, &sealed, &opened)
            }
        }
        try OMEMOPair.send(text, from: &pair.ours, to: &pair.theirs, &random, &sealed, &opened)
        sealed.removeAll(keepingCapacity: true)
        var ends: [Int] = []
        ends.reserveCapacity(Self.messages)
        try Figure.measure("encrypt", Self.messages) {
            for _ in 0..<Self.messages {
                _ = try pair.ours.encrypt(text.span, random: &random, into: &sealed)
                ends.append(sealed.count)
            }
        }
        Figure.print("message-bytes", Double(ends[Self.messages / 2] - ends[Self.messages / 2 - 1]))
        try Figure.measure("decrypt", Self.messages) {
            var start = 0
            for end in ends {
                opened.removeAll(keepingCapacity: true)
                _ = try pair.theirs.decrypt(sealed.span.extracting(start..<end), isKeyExchange: false, into: &opened)
                start = end
            }
        }
        sealed.removeAll()
        pair.theirs.serialize(into: &sealed)
        Figure.print("state-bytes", Double(sealed.count))
    }
}

private struct OMEMOPair: ~Copyable {
    var ours: OMEMOSession
    var theirs: OMEMOSession

    static func send(
        _ text: [UInt8], from sender: inout OMEMOSession, to receiver: inout OMEMOSession,
        _ random: inout SystemRandomSource, _ sealed: inout [UInt8], _ opened: inout [UInt8]
    ) throws {
        sealed.removeAll(keepingCapacity: true)
        opened.removeAll(keepingCapacity: true)
        _ = try sender.encrypt(text.span, random: &random, into: &sealed)
        _ = try receiver.decrypt(sealed.span, isKeyExchange: false, into: &opened)
    }
}
