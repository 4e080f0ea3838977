import Testing

@testable import pawl

@Suite struct DefaultTests {
    /// `sudo -u pawl` sets HOME; the gateway of the system service is the one that is meant.
    @Test func commandsFindTheGatewayOfTheService() {
        func directory(_ environment: [String: String], isRoot: Bool = false, usable: String...) -> String {
            CommonOptions.dataDirectory(environment, isRoot: isRoot) { usable.contains($0) }
        }
        let home = ["HOME": "/var/lib/pawl"]
        #expect(directory(home, usable: "/var/lib/pawl/pawl.sock") == "/var/lib/pawl")
        #expect(directory(home, usable: "/var/lib/pawl/pawl.sqlite") == "/var/lib/pawl")
        #expect(directory(["HOME": "/home/ann"]) == "/home/ann/.local/share/pawl")
        #expect(directory(["HOME": "/home/ann", "XDG_DATA_HOME": "/x"]) == "/x/pawl")
        #expect(directory(["HOME": "/root"], isRoot: true) == "/var/lib/pawl")
        #expect(directory(["PAWL_DATA": "/d", "HOME": "/h"], usable: "/var/lib/pawl/pawl.sock") == "/d")
        #expect(CommonOptions.personalData(["HOME": "/home/ann"], isRoot: false) == "/home/ann/.local/share/pawl")
    }
}
