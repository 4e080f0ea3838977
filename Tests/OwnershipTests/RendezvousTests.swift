import Ownership
import StorePort
import Testing

/// Where shards go. The hash is part of the protocol: gateways of two versions have to agree.
@Suite struct RendezvousTests {
    private static let gateways = (1...5).map { GatewayID(UInt64($0) &* 0x1234_5678_9ABC_DEF1) }

    private static func owners(_ gateways: [GatewayID]) -> [GatewayID?] {
        (0..<256).map { Rendezvous.owner(of: Shard(UInt8($0)), among: gateways) }
    }

    @Test func everyGatewayHasItsPart() {
        let owners = Self.owners(Self.gateways)
        for gateway in Self.gateways {
            let count = owners.filter { $0 == gateway }.count
            #expect((30...75).contains(count))
        }
        #expect(Self.owners([]).allSatisfy { $0 == nil })
        #expect(owners == Self.owners(Self.gateways.reversed()), "the order of the list does not matter")
    }

    @Test func onlyTheShardsOfAGatewayMoveWithIt() {
        let (all, fewer) = (Self.owners(Self.gateways), Self.owners(Self.gateways.dropLast()))
        for (before, after) in zip(all, fewer) where before != Self.gateways[4] { #expect(before == after) }
    }

    @Test func theHashIsTheSameInAllVersions() {
        let owners = Self.owners(Self.gateways).prefix(16).map { owner in Self.gateways.firstIndex { $0 == owner } }
        #expect(owners == Self.expected)
    }

    private static let expected = [4, 2, 1, 3, 4, 1, 1, 0, 4, 1, 2, 3, 2, 4, 4, 4]
}
