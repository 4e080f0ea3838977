import Protection

extension World {
    /// Members of `#room`, called `p0`, `p1` and so on.
    ///
    /// - Parameter accounts: whether each is logged in under that name.
    func people(_ count: Int, accounts: Bool = false) -> [Client] {
        (0..<count).map { number in
            let client = connect("p\(number)", account: accounts ? "p\(number)" : nil)
            send(client, "JOIN #Room")
            return client
        }
    }

    /// Two people's sidecars on a server without a gateway and without capabilities.
    static func sidecars() throws -> (alice: World, bob: World) {
        let alice = try World(.opportunistic, offers: nil, seed: 1, sidecar: true)
        return (alice, try World(.opportunistic, seed: 2, beside: alice, sidecar: true))
    }
}

extension World.Client {
    /// Texts of the messages that it has read, without the server's remarks.
    var texts: [String] {
        messages.filter { !$0.hasPrefix(":srv ") && !$0.contains("!pawl@localhost NOTICE ") }.map {
            String($0.split(separator: ":", maxSplits: 2).last ?? "")
        }
    }
}
