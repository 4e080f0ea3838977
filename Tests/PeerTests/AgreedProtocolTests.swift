import Glibc
import PeerKit
import TestThreads
import Testing

/// What client and gateway agree on in TLS.
@Suite(.blocking) struct AgreedProtocolTests {
    /// A gateway with a certificate, in front of nothing.
    private func gateway(
        _ scheme: String, _ upstream: String, _ environment: [String: String] = [:]
    ) throws -> (PawlProcess, Certificate, (ScratchDirectory, FreePort)) {
        let scratch = try ScratchDirectory()
        let certificate = try Certificate(in: scratch)
        chmod(certificate.keyPath, 0o600)
        var options = PawlProcess.Options()
        (options.listenScheme, options.upstreamScheme) = (scheme, upstream)
        options.environment = environment
        options.environment["PAWL_TLS_CERTIFICATE"] = certificate.certificatePath
        options.environment["PAWL_TLS_KEY"] = certificate.keyPath
        let nobody = try FreePort()
        return (try PawlProcess(upstream: nobody.number, options), certificate, (scratch, nobody))
    }

    @Test func clientsOfHTTPMaySpeakHTTP2() throws {
        let (gateway, certificate, kept) = try gateway(
            "https", "http", ["PAWL_MAPPING": JSONLab.mapping("generic")])
        defer { withExtendedLifetime(kept) { _ = gateway.stop() } }
        for (option, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
            let output = try ChildProcess.run(
                "curl",
                [
                    "-sS", "--noproxy", "*", option, "--cacert", certificate.certificatePath, "--max-time", "55",
                    "-w", "|%{http_version} %{http_code}", "https://127.0.0.1:\(gateway.port)/",
                ])
            #expect(output.stdout.contains("PAWL_BAD_GATEWAY"))
            #expect(output.stdout.hasSuffix("|\(version) 502"))
        }
    }

    @Test(arguments: ["https", "ircs"]) func othersDoNot(_ scheme: String) throws {
        let isWeb = scheme == "https"
        let (gateway, _, kept) = try gateway(
            scheme, isWeb ? "http" : "irc", isWeb ? ["PAWL_MAPPING": JSONLab.mapping("generic")] : [:])
        defer { withExtendedLifetime(kept) { _ = gateway.stop() } }
        let output = try ChildProcess.run(
            "openssl", ["s_client", "-connect", "127.0.0.1:\(gateway.port)", "-alpn", "h2,irc"])
        #expect(output.stdout.contains(isWeb ? "ALPN protocol: h2" : "No ALPN negotiated"))
    }
}
